"""Generates cells with the statistics of Tahoe-100M, plate by plate, in bounded memory.

Taken from the real data: 14 plates of uneven size with a plate entropy of 3.77 bits; 62,710 genes; about 1,400
non-zero counts per cell with mean 1.6; gzip h5ad files with the chunks that anndata would choose, for files of this
size or (`chunk_values`) of another; cells in runs of one drug and dose; 50 cell lines mixed within a run; the three
doses of each drug on three plates. Invented: which genes respond. The transcripts of a cell are drawn from the profile
of its cell line. Small shares of them are drawn from genes of its drug, of the drug's mechanism of action and of its
plate. So a linear model can learn the drug, and is less accurate on another plate.
"""

import json
import shutil
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import h5py
import numpy as np
import pandas as pd

from harness.data.synthetic.h5chunks import ChunkWriter, chunk_like_anndata
from harness.data.synthetic.transcripts import alias_table, sample_cells
from harness.errors import UserError
from harness.machine.host import available_cores

RECIPE = 1  # version; increase it if the same parameters give different cells
PLATES, GENES, LINES, DRUGS = 14, 62_710, 50, 379
DOSES_UM = (0.05, 0.5, 5.0)
MOA_FINE, MOA_BROAD = 27, 4
PLATE_ENTROPY_BITS = 3.77
# Transcripts per cell and the spread of the log abundance of genes give 1,400 genes per cell with a mean count of 1.6.
TRANSCRIPTS, TRANSCRIPTS_SPREAD, ABUNDANCE_SPREAD = 2_240, 0.35, 2.31
# Shares of a cell's transcripts. The shares for the drug and the mechanism apply to the highest dose.
DRUG_SHARE, MOA_SHARE, PLATE_SHARE = 0.025, 0.015, 0.08
DOSE_STRENGTH = (0.4, 0.7, 1.0)
RESPONDING_GENES = 200  # the number of genes that respond to one drug, mechanism or plate
DRUGS_PER_PLATE_EFFECT = 4
SLAB = 1_024  # the number of cells that one task samples
CELL_BYTES = 3_900  # size of a cell on disk, with its labels
INDEX_BYTES = 4


def generate(
    folder: Path,
    *,
    n_cells: int,
    seed: int,
    transcripts: int = TRANSCRIPTS,
    chunk_values: int | None = None,
    index_bytes: int = INDEX_BYTES,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Writes plate1.h5ad to plate14.h5ad to `folder`, unless it already holds them with these parameters.

    transcripts: their mean number per cell. chunk_values: the number of counts in a chunk; None: as many as anndata
    would choose for a file of this size. index_bytes: of a gene's number in the array `indices`, 4 or 8. The cells do
    not depend on these two. progress(number of cells done, n_cells) is
    called repeatedly. The folder appears only when it is complete. An interrupted run leaves its finished plates in
    FOLDER.partial, and the next run reuses them. Raises UserError if the disk has too little space.
    """
    recipe = {"recipe": RECIPE, "n_cells": n_cells, "seed": seed}
    if transcripts != TRANSCRIPTS:
        recipe["transcripts"] = transcripts
    if chunk_values is not None:
        recipe["chunk_values"] = chunk_values
    if index_bytes != INDEX_BYTES:
        recipe["index_bytes"] = index_bytes
    if _recipe_of(folder) == recipe:
        return
    partial = folder.with_name(folder.name + ".partial")
    folder.parent.mkdir(parents=True, exist_ok=True)
    resumed = _recipe_of(partial) == recipe
    present_bytes = sum(path.stat().st_size for path in partial.glob("*.h5ad") if resumed)
    needed = n_cells * CELL_BYTES * transcripts // TRANSCRIPTS - present_bytes
    free = shutil.disk_usage(folder.parent).free
    if needed > free:
        raise UserError(
            f"{folder.parent} has room for {free / 1e9:.1f} GB, and {folder.name} takes about {needed / 1e9:.1f} GB."
        )
    if not resumed:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        (partial / "recipe.json").write_text(json.dumps(recipe))
    design = Design(n_cells, seed, transcripts)
    done = 0
    with ThreadPoolExecutor(available_cores()) as pool:
        for plate in range(PLATES):
            path = partial / f"plate{plate + 1}.h5ad"
            if not path.exists():
                part = path.with_suffix(".part")
                for cells in _write_plate(part, design, plate, chunk_values, index_bytes, pool):
                    if progress:
                        progress(done + cells, n_cells)
                part.rename(path)
            done += int(design.plate_sizes[plate])
            if progress:
                progress(done, n_cells)
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)


def _recipe_of(folder: Path) -> dict | None:
    path = folder / "recipe.json"
    return json.loads(path.read_text()) if path.exists() else None


class Design:
    """Which cells each plate holds, and which genes respond to which drug, mechanism and plate.

    It is determined by the arguments of its constructor.
    """

    def __init__(self, n_cells: int, seed: int, transcripts: int = TRANSCRIPTS) -> None:
        rng = np.random.default_rng([seed, PLATES])
        self.seed, self.transcripts = seed, transcripts
        self.plate_sizes = _largest_remainder(shares_with_entropy(PLATES, PLATE_ENTROPY_BITS), n_cells)
        # The doses of a drug are on three plates: drug number i has them on plates i, i + 5 and i + 10 (modulo 14).
        drugs = rng.permutation(DRUGS)
        on_plate = (np.arange(DRUGS) + 5 * np.arange(len(DOSES_UM))[:, None]) % PLATES
        wells = drugs * len(DOSES_UM) + np.arange(len(DOSES_UM))[:, None]
        self.wells = [np.sort(wells[on_plate == plate]) for plate in range(PLATES)]
        self.moa_fine = rng.integers(0, MOA_FINE, DRUGS)
        self.moa_broad = rng.integers(0, MOA_BROAD, MOA_FINE)
        self.line_shares = rng.dirichlet(np.full(LINES, 5.0))
        abundance = rng.normal(0, ABUNDANCE_SPREAD, GENES)
        self.tables = [np.empty((LINES, GENES), t) for t in (np.uint32, np.int32)]
        for line in range(LINES):
            weights = np.exp(abundance + rng.normal(0, 1.5, GENES) * (rng.random(GENES) < 0.03))
            alias_table(weights / weights.sum(), self.tables[0][line], self.tables[1][line])
        # Expressed genes are preferred, so that a response changes a count instead of making a gene appear.
        shares = np.exp(abundance / 2)
        of_drug, of_moa = (_draw_rows(rng, n, shares / shares.sum()) for n in (DRUGS, MOA_FINE))
        # A plate shifts its cells towards a few drugs, which need not be on it. This misleads a model of other plates.
        drugs_of_plates = (rng.choice(DRUGS, DRUGS_PER_PLATE_EFFECT, replace=False) for _ in range(PLATES))
        n = RESPONDING_GENES // DRUGS_PER_PLATE_EFFECT
        of_plate = np.stack([of_drug[drugs, :n].ravel() for drugs in drugs_of_plates])
        self.responders = of_drug, of_moa, of_plate

    def obs(self, plate: int) -> pd.DataFrame:
        """One row per cell of a plate, in file order: codes of "drug", "dose" and "cell_line", and "transcripts"."""
        rng = np.random.default_rng([self.seed, plate])
        n = int(self.plate_sizes[plate])
        wells = self.wells[plate]
        well = np.repeat(wells, rng.multinomial(n, rng.dirichlet(np.full(len(wells), 20.0))))
        spread = TRANSCRIPTS_SPREAD
        transcripts = self.transcripts * np.exp(rng.normal(-spread * spread / 2, spread, n))
        return pd.DataFrame(
            {
                "drug": well // len(DOSES_UM),
                "dose": well % len(DOSES_UM),
                "cell_line": rng.choice(LINES, n, p=self.line_shares),
                "transcripts": np.maximum(transcripts, 1).astype(np.int64),
            }
        )

    def sample(self, plate: int, obs: pd.DataFrame, start: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(counts float32, genes int32, genes per cell int64) of at most SLAB cells of a plate, from `start` on.

        obs: the result of `obs(plate)`. Counts and genes of all cells are concatenated; each cell's genes ascend.
        """
        slab = obs.iloc[start : start + SLAB]
        drug = slab["drug"].to_numpy()
        strength = np.asarray(DOSE_STRENGTH)[slab["dose"]]
        cuts = np.cumsum([DRUG_SHARE * strength, MOA_SHARE * strength, np.full(len(slab), PLATE_SHARE)], axis=0)
        transcripts = slab["transcripts"].to_numpy()
        genes = np.empty(transcripts.sum(), np.int32)
        counts = np.empty(len(genes), np.float32)
        lengths = np.empty(len(slab), np.int64)
        used = sample_cells(
            np.uint64((self.seed * PLATES + plate) << 32), start, transcripts, slab["cell_line"].to_numpy(),
            drug, self.moa_fine[drug], plate, cuts, *self.tables, *self.responders, genes, counts, lengths,
        )  # fmt: skip
        return counts[:used], genes[:used], lengths


def _write_plate(
    path: Path, design: Design, plate: int, chunk_values: int | None, index_bytes: int, pool: ThreadPoolExecutor
) -> Iterator[int]:
    """Writes the h5ad file of one plate; yields the number of cells sampled so far."""
    from anndata.io import write_elem

    obs = design.obs(plate)
    n = len(obs)
    with h5py.File(path, "w") as file:
        file.attrs.update({"encoding-type": "anndata", "encoding-version": "0.1.0"})
        x = file.create_group("X")
        x.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": (n, GENES)})
        chunk = chunk_values or chunk_like_anndata(n * 1_400)
        data, indices = (
            ChunkWriter(x, name, dtype, chunk, pool) for name, dtype in (("data", "f4"), ("indices", f"i{index_bytes}"))
        )
        indptr = np.zeros(n + 1, np.int64)
        for start, (counts, genes, lengths) in zip(
            range(0, n, SLAB),
            in_order(pool, lambda s: design.sample(plate, obs, s), range(0, n, SLAB)),
            strict=True,
        ):
            data.append(counts)
            indices.append(genes)
            indptr[start + 1 : start + 1 + len(lengths)] = lengths
            yield start + len(lengths)
        data.close()
        indices.close()
        x.create_dataset("indptr", data=np.cumsum(indptr), compression="gzip")
        write_elem(file, "obs", _obs_table(design, obs, plate))
        write_elem(file, "var", pd.DataFrame(index=[f"gene{g:05d}" for g in range(GENES)]))


def _obs_table(design: Design, obs: pd.DataFrame, plate: int) -> pd.DataFrame:
    """The obs table of a plate: the labels as categorical columns, with the same categories in every file."""

    def categorical(codes: np.ndarray, names: Iterable[str]) -> pd.Categorical:
        return pd.Categorical.from_codes(codes, list(names))

    fine = design.moa_fine[obs["drug"]]
    table = {
        "plate": categorical(np.full(len(obs), plate), (f"plate{p + 1}" for p in range(PLATES))),
        "drug": categorical(obs["drug"], (f"drug{d:03d}" for d in range(DRUGS))),
        "dose": categorical(obs["dose"], (f"{dose} uM" for dose in DOSES_UM)),
        "cell_line": categorical(obs["cell_line"], (f"line{c:02d}" for c in range(LINES))),
        "moa_broad": categorical(design.moa_broad[fine], (f"broad{m}" for m in range(MOA_BROAD))),
        "moa_fine": categorical(fine, (f"fine{m:02d}" for m in range(MOA_FINE))),
    }
    return pd.DataFrame(table, index=[f"plate{plate + 1}_{i}" for i in range(len(obs))])


def in_order[T, R](pool: ThreadPoolExecutor, function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """The results of `function` in the order of `items`. `pool` computes at most a few items ahead of the consumer."""
    pending = deque()
    for item in items:
        pending.append(pool.submit(function, item))
        if len(pending) > 4:
            yield pending.popleft().result()
    while pending:
        yield pending.popleft().result()


def _draw_rows(rng: np.random.Generator, rows: int, shares: np.ndarray) -> np.ndarray:
    """Genes drawn with probabilities `shares`, without replacement in each row: int32, (rows, RESPONDING_GENES)."""
    drawn = [rng.choice(GENES, RESPONDING_GENES, replace=False, p=shares) for _ in range(rows)]
    return np.array(drawn, np.int32)


def shares_with_entropy(k: int, bits: float) -> np.ndarray:
    """k shares in a random order, float64, with a sum of 1 and an entropy of `bits`. Sorted, they form a geometric
    sequence."""
    low, high = 0.0, 10.0
    for _ in range(100):
        slope = (low + high) / 2
        shares = np.exp(-slope * np.linspace(0, 1, k))
        shares /= shares.sum()
        low, high = (slope, high) if -(shares * np.log2(shares)).sum() > bits else (low, slope)
    return np.random.default_rng(k).permutation(shares)


def _largest_remainder(shares: np.ndarray, total: int) -> np.ndarray:
    """int64 counts in proportion to `shares` with the sum `total` (largest remainder method)."""
    counts = np.floor(shares * total).astype(np.int64)
    counts[np.argsort(counts - shares * total)[: total - counts.sum()]] += 1
    return counts
