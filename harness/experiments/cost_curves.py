"""Measures how the cost per cell of ranking genes, shuffling, reading and fitting depends on the number of cells per
call.

The first three reproduce SLAF's authors, who found that larger batches cost less per cell. Fitting a model reproduces
annbatch's first supplementary figure. Reading is measured with loadstone. A fifth measurement, the "ladder", repeats
the five phases in which SLAF's authors went from a loader of single cells to their own.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from importlib.util import find_spec
from itertools import cycle

import h5py
import numba
import numpy as np
import pandas as pd
from scipy.sparse import csr_matrix

from harness.data.dataset import Dataset
from harness.records.cost import PHASES
from loadstone import BlockShuffling, open_h5ad

REPEATS, LEAST_S = 5, 0.25  # repeats per size, and the minimum duration of a repeat in seconds
RANKED = 1_024  # genes that are kept per cell
GENES = 8_192  # inputs of the fitted models
SIZES = {
    "ranking": (32, 64, 128, 256, 512, 1_024),
    "shuffling": (100, 500, 1_000, 2_000, 5_000),
    "reading": (64, 256, 1_024, 4_096, 16_384),
    "fitting": (64, 256, 1_024, 4_096),
}
Timed = Callable[[], object]


def measure(dataset: Dataset, say: Callable[[str], None]) -> dict[tuple[str, str, int], list[float]]:
    """Microseconds per cell, one value per repeat, by (law, method, size).

    law: the operation, or "ladder". size: the number of cells per call; for "ladder", the index of the phase in PHASES.
    Each repeat measures everything once, in a new random order. `say` is called with a description of each step.
    """
    with closing(open_h5ad(dataset.paths)) as source, h5py.File(dataset.paths[0]) as file:
        rows = np.random.default_rng(0).permutation(dataset.n_cells)[: max(max(sizes) for sizes in SIZES.values())]
        cells = take(source, np.sort(rows))
        work = [*_ranking(cells), *_shuffling(cells), *_reading(source), *_fitting(cells), *_ladder(file, source)]
        costs = {(law, method, size): [] for law, method, size, *_ in work}
        for repeat in range(REPEATS):
            for i in np.random.default_rng(repeat).permutation(len(work)):
                law, method, size, count, timed = work[i]
                say(f"repeat {repeat + 1} of {REPEATS}: {law}, {method}, {size:,}")
                costs[law, method, size].append(us_per_cell(timed, count))
    return costs


def us_per_cell(timed: Timed, cells: int) -> float:
    """The time per cell in microseconds of `timed`, which processes `cells` cells per call.

    After one warm-up call, `timed` is called repeatedly for at least LEAST_S seconds.
    """
    timed()
    start, calls = time.perf_counter(), 0
    while (seconds := time.perf_counter() - start) < LEAST_S or not calls:
        timed()
        calls += 1
    return seconds / (calls * cells) * 1e6


def take(source: object, rows: np.ndarray) -> csr_matrix:
    """The cells with the row ids `rows`, in this order, as one CSR matrix. source: a `Matrix` with CSR output."""
    gathering = source.gather(rows)
    (x,) = source.batches(gathering.result(), [0, len(rows)])
    return x


Work = Iterator[tuple[str, str, int, int, Timed]]
"""Yields (law, method, size, number of cells that one call processes, function to call)."""


def _ranking(cells: csr_matrix) -> Work:
    for size in SIZES["ranking"]:
        x = cells[:size]
        for method, rank in RANKERS.items():
            if method != "polars" or find_spec("polars"):
                yield "ranking", method, size, size, lambda x=x, rank=rank: rank(x)


def rank_pandas(x: csr_matrix) -> np.ndarray:
    """The gene indices of each cell by descending count, at most RANKED per cell; all cells concatenated, int32."""
    table = pd.DataFrame({"cell": np.repeat(np.arange(x.shape[0]), np.diff(x.indptr)), "gene": x.indices, "x": x.data})
    table["rank"] = table.groupby("cell")["x"].rank(method="first", ascending=False)
    return table[table["rank"] <= RANKED].sort_values(["cell", "rank"])["gene"].to_numpy()


def rank_polars(x: csr_matrix) -> np.ndarray:
    """The result of `rank_pandas`, computed with window functions of polars, as in SLAF."""
    import polars as pl

    cell = np.repeat(np.arange(x.shape[0]), np.diff(x.indptr))
    rank = pl.col("x").rank(method="ordinal", descending=True).over("cell").alias("rank")
    table = pl.DataFrame({"cell": cell, "gene": x.indices, "x": x.data}).with_columns(rank)
    return table.filter(pl.col("rank") <= RANKED).sort("cell", "rank")["gene"].to_numpy()


def rank_compiled(x: csr_matrix) -> np.ndarray:
    """The result of `rank_pandas`, computed in a compiled loop over the cells, on all cores."""
    kept = np.minimum(np.diff(x.indptr), RANKED)
    starts = np.concatenate([[0], np.cumsum(kept)])
    out = np.empty(starts[-1], np.int32)
    _rank(x.indptr, x.indices, x.data, starts, out)
    return out


@numba.njit(nogil=True, cache=True, parallel=True)
def _rank(indptr, indices, data, starts, out):
    for cell in numba.prange(len(indptr) - 1):
        first = indptr[cell]
        order = np.argsort(-data[first : indptr[cell + 1]], kind="mergesort")
        for i in range(starts[cell + 1] - starts[cell]):
            out[starts[cell] + i] = indices[first + order[i]]


RANKERS = {"pandas": rank_pandas, "polars": rank_polars, "compiled": rank_compiled}


def _shuffling(cells: csr_matrix) -> Work:
    for size in SIZES["shuffling"]:
        x, order = cells[:size], np.random.default_rng(0).permutation(size)
        yield "shuffling", "gather", size, size, lambda x=x, order=order: x[order]


def _reading(source: object) -> Work:
    """Reads consecutive cells from 1,000 random positions. Later reads of a position may come from the page cache."""
    for size in SIZES["reading"]:
        first_rows = np.random.default_rng(0).integers(0, len(source) - size, 1_000)
        row = iter(np.resize(first_rows, 1_000_000))
        yield "reading", "chunks", size, size, lambda size=size, row=row: take(source, next(row) + np.arange(size))


def _fitting(cells: csr_matrix) -> Work:
    """Training steps of the models in harness/experiments/heads.py. Yields nothing without torch and scikit-learn."""
    if not (find_spec("torch") and find_spec("sklearn")):
        return
    import torch

    from harness.experiments.heads import Counts, Heads, keep_freed_memory

    keep_freed_memory()
    classes = {"cell_line": 50, "drug": 379}
    heads = Heads(GENES, classes, 0)
    optimizer = torch.optim.Adam(heads.parameters(), lr=1e-3, fused=True)

    def step(counts: Counts, labels: dict) -> None:
        optimizer.zero_grad()
        heads.losses(counts, labels).sum().backward()
        optimizer.step()

    for size in SIZES["fitting"]:
        counts = Counts(csr_matrix(cells[:size, :GENES]), torch.device("cpu"))
        labels = {task: torch.arange(size) % n for task, n in classes.items()}
        yield "fitting", "heads", size, size, lambda counts=counts, labels=labels: step(counts, labels)


def _ladder(file: h5py.File, source: object) -> Work:
    """The five phases of the ladder, over h5ad. `size` is the index of the phase. Phase 3 needs polars."""
    from anndata.io import sparse_dataset

    x = sparse_dataset(file["X"])
    n = x.shape[0]
    rng, fetch = np.random.default_rng(0), 16_384
    order = BlockShuffling(16).order(source, None, len(source), fetch, 0, 0)
    fetch_numbers = cycle(range(len(source) // fetch or 1))
    yield "ladder", PHASES[0], 0, 1, lambda: rank_pandas(csr_matrix(x[int(rng.integers(n))]))
    yield "ladder", PHASES[1], 1, 64, lambda: rank_pandas(csr_matrix(x[np.sort(rng.choice(n, 64, replace=False))]))
    yield "ladder", PHASES[2], 2, 64, lambda: rank_pandas(take(source, rng.choice(n, 64, replace=False)))
    if find_spec("polars"):
        yield "ladder", PHASES[3], 3, 64, lambda: rank_polars(take(source, rng.choice(n, 64, replace=False)))
    yield "ladder", PHASES[4], 4, fetch, lambda: rank_compiled(take(source, order.fetch(next(fetch_numbers))))
