"""Trains the models of `heads` for one epoch, in one of several orders of the same cells, and evaluates them.

The cells are read with loadstone.
"""

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
HELD_OUT = 65_536  # cells of a test set, at most; the i.i.d. one has at most 1/16 of the cells of the training plates
COUNTED = 1_000_000  # cells that are used to choose the most counted genes, at most
SMOOTHING = 1_000 / 94_129_984  # of the weights: 1,000 cells in the paper, as a share of its training cells
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
"""The orders of scDataset's training experiments, by the name of the arm.

"block" and "block-weighted" use blocks of 16 cells, "random" and "true-weighted" single cells. Fetches have 16,384
cells.
"""


class Cells:
    """A data set, split into a training set and two test sets; each is an ascending array of int64 row ids.

    The test set "plate" has cells of the last plate only, and tests generalisation to another experiment. The test set
    "iid" is a random sample of the other plates; their other cells are the training set. labels: for each task, the
    int64 code of each cell, (n_cells,); -1 for a missing label. Raises UserError if fewer than two cells are outside
    the last plate.
    """

    def __init__(self, dataset: Dataset, tasks: tuple[str, ...]) -> None:
        self.dataset, self.tasks = dataset, tasks
        self.plates = dataset.labels(PLATE)
        self.labels = {task: dataset.labels(task).astype(np.int64) for task in tasks}
        rng = np.random.default_rng(0)
        last = np.flatnonzero(self.plates == self.plates.max())
        others = np.flatnonzero((self.plates >= 0) & (self.plates < self.plates.max()))
        if len(others) < 2:
            raise UserError(f"{dataset.name} has cells of one plate, but training needs the last plate for testing.")
        held_out = rng.choice(others, min(HELD_OUT, max(1, len(others) // 16)), replace=False)
        of_last = last if len(last) <= HELD_OUT else rng.choice(last, HELD_OUT, replace=False)
        self.train = np.setdiff1d(others, held_out)
        self.tests = {"iid": np.sort(held_out), "plate": np.sort(of_last)}

    @property
    def classes(self) -> dict[str, int]:
        """The number of classes of each task."""
        return {task: int(codes.max()) + 1 for task, codes in self.labels.items()}

    def weights(self) -> np.ndarray:
        """Sampling weights by row id, float64, (n_cells,).

        They are higher for pairs of cell line and drug that are rare in the training set. Cells with an unknown cell
        line or drug have weight 0.
        """
        lines, drugs = self.labels["cell_line"], self.labels["drug"]
        pairs = np.where((lines >= 0) & (drugs >= 0), lines * self.classes["drug"] + drugs, -1)
        counts = np.bincount(pairs[self.train] + 1, minlength=pairs.max() + 2)
        return np.where(pairs >= 0, 1 / (counts[pairs + 1] + SMOOTHING * len(self.train)), 0)

    def loader(self, sampler: Sampler, rows: np.ndarray, seed: int = 0) -> BlockLoader:
        """A loader of the cells with the row ids `rows`. Minibatches have the labels of all tasks and the plates."""
        labels = self.labels | {PLATE: self.plates}
        return BlockLoader(
            open_h5ad(self.dataset.paths), sampler=sampler, subset=rows, labels=labels, seed=seed,
            batch_size=SETTINGS["batch_size"], fetch_factor=SETTINGS["fetch_factor"],
        )  # fmt: skip

    def most_counted(self, genes: int) -> np.ndarray:
        """The indices of the `genes` genes with the highest total counts, int64, ascending.

        The totals are those of all training cells, or of a random sample if there are more than COUNTED.
        """
        totals = np.zeros(self.dataset.n_genes)
        with closing(self.loader(BlockShuffling(16), self.train)) as loader:
            for batch in islice(loader.epoch(0), COUNTED // SETTINGS["batch_size"]):
                totals += np.bincount(batch.x.indices, weights=batch.x.data, minlength=len(totals))
        return np.sort(np.argsort(-totals, kind="stable")[:genes])


class Inputs:
    """Turns the counts of a minibatch into inputs of the models: log(1 + counts normalised to 10,000 per cell).

    The counts are normalised over all genes; then only the genes with the indices `chosen` are kept.
    """

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
    """The key that identifies a run on this data set with the SETTINGS of this module, see `records.key_of`."""
    return records.key_of(dataset.fingerprint, arm, seed, genes, *SETTINGS.values())


def train(
    cells: Cells,
    chosen: np.ndarray,
    arm: str,
    seed: int,
    folder: Path,
    progress: Callable[[int, int, str], None],
) -> dict[str, Any]:
    """Trains for one epoch in one order, evaluates the models, and writes the log of the run.

    chosen: the indices of the genes to train on. arm: a key of SAMPLERS. folder: the results folder for the log, see
    `records.curve_path`. progress(minibatches done, minibatches in total, loss as text) is called after each minibatch.
    A checkpoint is saved every minute; the next call with the same arguments resumes an interrupted run from it.
    Returns the fields minibatches, seconds, scores, genes and SETTINGS of `records.Run`.
    """
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    keep_freed_memory()
    inputs = Inputs(chosen, cells.dataset.n_genes, device)
    heads = Heads(len(chosen), cells.classes, seed).to(device)
    optimizer = torch.optim.Adam(heads.parameters(), lr=SETTINGS["learning_rate"], fused=True)
    path = records.curve_path(folder, key_of(cells.dataset, arm, seed, len(chosen)))
    path.parent.mkdir(parents=True, exist_ok=True)
    checkpoint = path.with_suffix(".partial.pt")
    with closing(cells.loader(SAMPLERS[arm](cells), cells.train, seed)) as loader:
        losses, plates, earlier_s = _resume(checkpoint, heads, optimizer, loader)
        total, start = len(loader), time.monotonic()
        last_saved = start
        for batch in loader:
            labels = {task: torch.from_numpy(batch.labels[task]).to(device) for task in cells.tasks}
            batch_losses = heads.losses(inputs(batch.x), labels)
            optimizer.zero_grad()
            batch_losses.sum().backward()
            optimizer.step()
            losses.append(batch_losses.detach().cpu().numpy())
            plates.append(np.bincount(batch.labels[PLATE]).argmax())
            progress(len(losses), total, f"loss {losses[-1].sum():.2f}")
            if time.monotonic() - last_saved > CHECKPOINT_S:
                last_saved = time.monotonic()
                _save(checkpoint, heads, optimizer, loader, losses, plates, earlier_s + last_saved - start)
        seconds = earlier_s + time.monotonic() - start
    scores = evaluate(heads, inputs, cells)
    log = {"losses": np.array(losses, np.float32), "heads": heads.names, "plates": np.array(plates, np.int16)}
    np.savez_compressed(path, **log)
    checkpoint.unlink(missing_ok=True)
    return {"minibatches": len(losses), "seconds": seconds, "scores": scores, "genes": len(chosen), **SETTINGS}


def _resume(
    checkpoint: Path, heads: Heads, optimizer: torch.optim.Optimizer, loader: BlockLoader
) -> tuple[list[np.ndarray], list[int], float]:
    """Loads the checkpoint into the models, optimizer and loader, if there is one.

    Returns (losses, plates, seconds) of the minibatches before the checkpoint; ([], [], 0.0) without a checkpoint.
    """
    if not checkpoint.exists():
        return [], [], 0.0
    state = torch.load(checkpoint, map_location="cpu", weights_only=True)
    heads.load_state_dict(state["heads"])
    optimizer.load_state_dict(state["optimizer"])
    loader.load_state_dict(state["loader"])
    return list(state["losses"].numpy()), state["plates"].tolist(), state["seconds"]


def _save(
    checkpoint: Path,
    heads: Heads,
    optimizer: torch.optim.Optimizer,
    loader: BlockLoader,
    losses: list[np.ndarray],
    plates: list[int],
    seconds: float,
) -> None:
    """Atomically writes the checkpoint that `_resume` loads."""
    state = {
        "heads": heads.state_dict(),
        "optimizer": optimizer.state_dict(),
        "loader": loader.state_dict(),
        "losses": torch.from_numpy(np.array(losses)),
        "plates": torch.tensor(plates),
        "seconds": seconds,
    }
    new = checkpoint.with_suffix(".new")
    torch.save(state, new)
    new.rename(checkpoint)


@torch.no_grad()
def evaluate(heads: Heads, inputs: Inputs, cells: Cells) -> dict[str, dict[str, dict[str, float]]]:
    """The scores by head, test set and name of the score ("macro_f1", "accuracy"), on all cells that have a label."""
    scores: dict[str, dict[str, dict[str, float]]] = {name: {} for name in heads.names}
    for test, rows in cells.tests.items():
        predicted: list[list[np.ndarray]] = [[] for _ in heads.names]
        labels: dict[str, list[np.ndarray]] = {task: [] for task in cells.tasks}
        with closing(cells.loader(Streaming(), rows)) as loader:
            for batch in loader:
                for predictions, logits in zip(predicted, heads(inputs(batch.x)), strict=True):
                    predictions.append(logits.argmax(dim=1).cpu().numpy())
                for task in cells.tasks:
                    labels[task].append(batch.labels[task])
        for name, predictions in zip(heads.names, predicted, strict=True):
            truth, prediction = np.concatenate(labels[name.split(" ", 1)[1]]), np.concatenate(predictions)
            known = truth != NO_LABEL
            scores[name][test] = {
                "macro_f1": float(f1_score(truth[known], prediction[known], average="macro", zero_division=0)),
                "accuracy": float(accuracy_score(truth[known], prediction[known])),
            }
    return scores
