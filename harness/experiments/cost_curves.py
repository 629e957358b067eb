"""The cost of a cell by how many cells are handled at once: ranking genes, shuffling, reading, and fitting a model.

SLAF's authors found with the first three that larger pieces are cheaper, and used that in five phases from a loader of
single cells to theirs. The last is annbatch's first supplementary figure. Reading is measured with our own loader.
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

REPEATS, LEAST_S = 5, 0.25  # of each size; seconds that a repeat goes on for, at least
RANKED = 1_024  # genes of a cell that are kept
GENES = 8_192  # that the models which are fitted take
SIZES = {
    "ranking": (32, 64, 128, 256, 512, 1_024),
    "shuffling": (100, 500, 1_000, 2_000, 5_000),
    "reading": (64, 256, 1_024, 4_096, 16_384),
    "fitting": (64, 256, 1_024, 4_096),
}
Timed = Callable[[], object]


def measure(dataset: Dataset, say: Callable[[str], None]) -> dict[tuple[str, str, int], list[float]]:
    """Microseconds a cell of each repeat, by law, method and size. Each repeat takes them in another order."""
    with closing(open_h5ad(dataset.paths)) as source, h5py.File(dataset.paths[0]) as file:
        rows = np.random.default_rng(0).permutation(dataset.n_cells)[: max(max(sizes) for sizes in SIZES.values())]
        cells = take(source, np.sort(rows))
        work = [*_ranking(cells), *_shuffling(cells), *_reading(source), *_fitting(cells), *_ladder(file, source)]
        found = {(law, method, size): [] for law, method, size, *_ in work}
        for repeat in range(REPEATS):
            for i in np.random.default_rng(repeat).permutation(len(work)):
                law, method, size, count, timed = work[i]
                say(f"repeat {repeat + 1} of {REPEATS}: {law}, {method}, {size:,}")
                found[law, method, size].append(us_per_cell(timed, count))
    return found


def us_per_cell(timed: Timed, cells: int) -> float:
    """Microseconds a cell of work on so many of them: once unmeasured, then for a quarter of a second."""
    timed()
    begun, times = time.perf_counter(), 0
    while (passed := time.perf_counter() - begun) < LEAST_S or not times:
        timed()
        times += 1
    return passed / (times * cells) * 1e6


def take(source: object, rows: np.ndarray) -> csr_matrix:
    """Cells of these ids, in this order, as one matrix."""
    gathering = source.gather(rows)
    (x,) = source.batches(gathering.result(), [0, len(rows)])
    return x


Work = Iterator[tuple[str, str, int, int, Timed]]
"""law, method, size, the cells of one call, and the call."""


def _ranking(cells: csr_matrix) -> Work:
    for size in SIZES["ranking"]:
        x = cells[:size]
        for method, rank in RANKERS.items():
            if method != "polars" or find_spec("polars"):
                yield "ranking", method, size, size, lambda x=x, rank=rank: rank(x)


def rank_pandas(x: csr_matrix) -> np.ndarray:
    """Genes of each cell, one cell after another, by descending count, RANKED at most: (kept counts,) int32."""
    table = pd.DataFrame({"cell": np.repeat(np.arange(x.shape[0]), np.diff(x.indptr)), "gene": x.indices, "x": x.data})
    table["rank"] = table.groupby("cell")["x"].rank(method="first", ascending=False)
    return table[table["rank"] <= RANKED].sort_values(["cell", "rank"])["gene"].to_numpy()


def rank_polars(x: csr_matrix) -> np.ndarray:
    """The same by polars' window functions, as SLAF does."""
    import polars as pl

    cell = np.repeat(np.arange(x.shape[0]), np.diff(x.indptr))
    rank = pl.col("x").rank(method="ordinal", descending=True).over("cell").alias("rank")
    table = pl.DataFrame({"cell": cell, "gene": x.indices, "x": x.data}).with_columns(rank)
    return table.filter(pl.col("rank") <= RANKED).sort("cell", "rank")["gene"].to_numpy()


def rank_compiled(x: csr_matrix) -> np.ndarray:
    """The same in a compiled loop over cells, on all cores."""
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
    """Of so many cells in a row, wherever they lie; from memory after the first time."""
    for size in SIZES["reading"]:
        starts = np.random.default_rng(0).integers(0, len(source) - size, 1_000)
        turn = iter(np.resize(starts, 1_000_000))
        yield "reading", "chunks", size, size, lambda size=size, turn=turn: take(source, next(turn) + np.arange(size))


def _fitting(cells: csr_matrix) -> Work:
    """A step of the models that are trained (harness/experiments/heads.py) on minibatches of so many cells."""
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
    """The five phases on h5ad; size is the phase's number."""
    from anndata.io import sparse_dataset

    x = sparse_dataset(file["X"])
    n = x.shape[0]
    draw, fetch = np.random.default_rng(0), 16_384
    order = BlockShuffling(16).order(source, None, len(source), fetch, 0, 0)
    turn = cycle(range(len(source) // fetch or 1))
    yield "ladder", PHASES[0], 0, 1, lambda: rank_pandas(csr_matrix(x[int(draw.integers(n))]))
    yield "ladder", PHASES[1], 1, 64, lambda: rank_pandas(csr_matrix(x[np.sort(draw.choice(n, 64, replace=False))]))
    yield "ladder", PHASES[2], 2, 64, lambda: rank_pandas(take(source, draw.choice(n, 64, replace=False)))
    if find_spec("polars"):
        yield "ladder", PHASES[3], 3, 64, lambda: rank_polars(take(source, draw.choice(n, 64, replace=False)))
    yield "ladder", PHASES[4], 4, fetch, lambda: rank_compiled(take(source, order.fetch(next(turn))))
