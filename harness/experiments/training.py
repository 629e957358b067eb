"""One epoch of the same models on the same cells, in one order or another, read with our own loader."""

import time
from collections.abc import Callable
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_matrix
from sklearn.metrics import accuracy_score, f1_score

from harness.data.dataset import Dataset
from harness.errors import UserError
from harness.experiments.heads import NO_LABEL, Counts, Heads, keep_freed_memory
from harness.records import training as records
from loadstone import BlockLoader, BlockShuffling, BlockWeightedSampling, Streaming, open_h5ad
from loadstone.sampling.samplers import Sampler

TASKS = ("cell_line", "drug", "moa_broad", "moa_fine")
PLATE = "plate"
SETTINGS = {"batch_size": 64, "fetch_factor": 256, "learning_rate": 1e-3}
HELD_OUT = 65_536  # cells of a test set at most; the i.i.d. one is a sixteenth of the training plates at most
COUNTED = 1_000_000  # cells by which the most counted genes are chosen, at most
SMOOTHING = 1_000 / 94_129_984  # of the weights: the paper's 1,000 cells, as a share of its training cells
CHECKPOINT_S = 60.0
TOTAL = 1e4  # counts of a cell after normalisation

SAMPLERS: dict[str, Callable[["Cells"], Sampler]] = {
    "random": lambda cells: BlockShuffling(1),
    "block": lambda cells: BlockShuffling(16),
    "stream": lambda cells: Streaming(),
    "stream-buffer": lambda cells: Streaming(shuffle=True),
    "block-weighted": lambda cells: BlockWeightedSampling(cells.weights(), 16),
    "true-weighted": lambda cells: BlockWeightedSampling(cells.weights(), 1),
}
"""The orders of scDataset's training experiments: blocks of 16 cells, buffers of 16,384."""


class Cells:
    """A data set split for training: rows (int64 ids) to train on, and of the two test sets.

    The last plate tests how far what was learnt carries to another experiment; cells drawn from the others test how
    much was learnt. labels: int64 codes by row id and task.
    """

    def __init__(self, dataset: Dataset, tasks: tuple[str, ...]) -> None:
        self.dataset, self.tasks = dataset, tasks
        self.plates = dataset.labels(PLATE)
        self.labels = {task: dataset.labels(task).astype(np.int64) for task in tasks}
        rng = np.random.default_rng(0)
        last = np.flatnonzero(self.plates == self.plates.max())
        others = np.flatnonzero((self.plates >= 0) & (self.plates < self.plates.max()))
        if len(others) < 2:
            raise UserError(f"{dataset.name} has cells of one plate, and training keeps the last plate for testing.")
        held_out = rng.choice(others, min(HELD_OUT, max(1, len(others) // 16)), replace=False)
        plate = last if len(last) <= HELD_OUT else rng.choice(last, HELD_OUT, replace=False)
        self.train = np.setdiff1d(others, held_out)
        self.tests = {"iid": np.sort(held_out), "plate": np.sort(plate)}

    @property
    def classes(self) -> dict[str, int]:
        return {task: int(codes.max()) + 1 for task, codes in self.labels.items()}

    def weights(self) -> np.ndarray:
        """float64, (n_cells,): in proportion to them a cell is drawn; rare pairs of cell line and drug have more,
        those of which one is not known nothing."""
        lines, drugs = self.labels["cell_line"], self.labels["drug"]
        pairs = np.where((lines >= 0) & (drugs >= 0), lines * self.classes["drug"] + drugs, -1)
        counts = np.bincount(pairs[self.train] + 1, minlength=pairs.max() + 2)
        return np.where(pairs >= 0, 1 / (counts[pairs + 1] + SMOOTHING * len(self.train)), 0)

    def loader(self, sampler: Sampler, rows: np.ndarray, seed: int = 0) -> BlockLoader:
        labels = self.labels | {PLATE: self.plates}
        return BlockLoader(
            open_h5ad(self.dataset.paths), sampler=sampler, subset=rows, labels=labels, seed=seed,
            batch_size=SETTINGS["batch_size"], fetch_factor=SETTINGS["fetch_factor"],
        )  # fmt: skip

    def most_counted(self, genes: int) -> np.ndarray:
        """int64, ascending: the genes with most counts, in cells of all training plates."""
        totals = np.zeros(self.dataset.n_genes)
        with closing(self.loader(BlockShuffling(16), self.train)) as loader:
            for batch in islice(loader.epoch(0), COUNTED // SETTINGS["batch_size"]):
                totals += np.bincount(batch.x.indices, weights=batch.x.data, minlength=len(totals))
        return np.sort(np.argsort(-totals, kind="stable")[:genes])


class Inputs:
    """Turns counts into what the models take: log(1 + counts of 10,000), of the chosen genes alone."""

    def __init__(self, chosen: np.ndarray, n_genes: int, device: torch.device) -> None:
        self.column = np.full(n_genes, -1, np.int64)
        self.column[chosen] = np.arange(len(chosen))
        self.genes, self.device = len(chosen), device

    def __call__(self, x: csr_matrix) -> Counts:
        n = x.shape[0]
        cell = np.repeat(np.arange(n), np.diff(x.indptr))
        totals = np.maximum(np.bincount(cell, weights=x.data, minlength=n), 1)
        values = np.log1p(x.data * (TOTAL / totals)[cell]).astype(np.float32)
        columns = self.column[x.indices]
        kept = columns >= 0
        starts = np.concatenate([[0], np.cumsum(np.bincount(cell[kept], minlength=n))])
        return Counts(csr_matrix((values[kept], columns[kept], starts), shape=(n, self.genes)), self.device)


def key_of(dataset: Dataset, arm: str, seed: int, genes: int) -> str:
    """What names a run of these cells with this module's settings."""
    return records.key_of(dataset.fingerprint, arm, seed, genes, *SETTINGS.values())


def train(
    cells: Cells,
    chosen: np.ndarray,
    arm: str,
    seed: int,
    folder: Path,
    progress: Callable[[int, int, str], None],
) -> dict[str, Any]:
    """One epoch in one order: the fields of `Run` that it finds; what it logged is written beside the records.

    Goes on, at the very next minibatch, from where the same run was stopped; it is kept every minute.
    """
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    keep_freed_memory()
    inputs = Inputs(chosen, cells.dataset.n_genes, device)
    heads = Heads(len(chosen), cells.classes, seed).to(device)
    optimizer = torch.optim.Adam(heads.parameters(), lr=SETTINGS["learning_rate"], fused=True)
    path = records.curve_path(folder, key_of(cells.dataset, arm, seed, len(chosen)))
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_suffix(".partial.pt")
    with closing(cells.loader(SAMPLERS[arm](cells), cells.train, seed)) as loader:
        losses, plates, before = _resume(aside, heads, optimizer, loader)
        total, begun = len(loader), time.monotonic()
        said = begun
        for batch in loader:
            answers = {task: torch.from_numpy(batch.labels[task]).to(device) for task in cells.tasks}
            found = heads.losses(inputs(batch.x), answers)
            optimizer.zero_grad()
            found.sum().backward()
            optimizer.step()
            losses.append(found.detach().cpu().numpy())
            plates.append(np.bincount(batch.labels[PLATE]).argmax())
            progress(len(losses), total, f"loss {losses[-1].sum():.2f}")
            if time.monotonic() - said > CHECKPOINT_S:
                said = time.monotonic()
                _keep(aside, heads, optimizer, loader, losses, plates, before + said - begun)
        seconds = before + time.monotonic() - begun
    scores = evaluate(heads, inputs, cells)
    log = {"losses": np.array(losses, np.float32), "heads": heads.names, "plates": np.array(plates, np.int16)}
    np.savez_compressed(path, **log)
    aside.unlink(missing_ok=True)
    return {"minibatches": len(losses), "seconds": seconds, "scores": scores, "genes": len(chosen), **SETTINGS}


def _resume(
    aside: Path, heads: Heads, optimizer: torch.optim.Optimizer, loader: BlockLoader
) -> tuple[list[np.ndarray], list[int], float]:
    """(losses, plates, seconds) of the minibatches that a stopped run has left behind."""
    if not aside.exists():
        return [], [], 0.0
    state = torch.load(aside, map_location="cpu", weights_only=True)
    heads.load_state_dict(state["heads"])
    optimizer.load_state_dict(state["optimizer"])
    loader.load_state_dict(state["loader"])
    return list(state["losses"].numpy()), state["plates"].tolist(), state["seconds"]


def _keep(
    aside: Path,
    heads: Heads,
    optimizer: torch.optim.Optimizer,
    loader: BlockLoader,
    losses: list[np.ndarray],
    plates: list[int],
    seconds: float,
) -> None:
    """Writes everything that `_resume` needs; whole or not at all."""
    state = {
        "heads": heads.state_dict(),
        "optimizer": optimizer.state_dict(),
        "loader": loader.state_dict(),
        "losses": torch.from_numpy(np.array(losses)),
        "plates": torch.tensor(plates),
        "seconds": seconds,
    }
    new = aside.with_suffix(".new")
    torch.save(state, new)
    new.rename(aside)


@torch.no_grad()
def evaluate(heads: Heads, inputs: Inputs, cells: Cells) -> dict[str, dict[str, dict[str, float]]]:
    """Scores of every head on every test set."""
    scores: dict[str, dict[str, dict[str, float]]] = {name: {} for name in heads.names}
    for test, rows in cells.tests.items():
        said: list[list[np.ndarray]] = [[] for _ in heads.names]
        answers: dict[str, list[np.ndarray]] = {task: [] for task in cells.tasks}
        with closing(cells.loader(Streaming(), rows)) as loader:
            for batch in loader:
                for guesses, logits in zip(said, heads(inputs(batch.x)), strict=True):
                    guesses.append(logits.argmax(dim=1).cpu().numpy())
                for task in cells.tasks:
                    answers[task].append(batch.labels[task])
        for name, guesses in zip(heads.names, said, strict=True):
            truth, guess = np.concatenate(answers[name.split(" ", 1)[1]]), np.concatenate(guesses)
            known = truth != NO_LABEL
            scores[name][test] = {
                "macro_f1": float(f1_score(truth[known], guess[known], average="macro", zero_division=0)),
                "accuracy": float(accuracy_score(truth[known], guess[known])),
            }
    return scores
