"""The reference loader, against which the tests check the others.

It holds all cells in memory, permutes them and cuts them into minibatches.
"""

from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np
import psutil
from scipy.sparse import csr_matrix

from harness.condition import Condition
from harness.data.dataset import Dataset
from loaders.convert import to_output
from loaders.protocol import UNCONVERTED, Batch, Incompatible


class Reference:
    """Reads all files into memory when it is opened: 8 bytes per stored value of X. In a dense X, zeros are stored too.

    `open` raises Incompatible if less memory is available.
    """

    name = "reference"
    imports = ("anndata",)
    store = UNCONVERTED
    knobs = {}
    in_memory = True

    @classmethod
    def broken(cls, condition: Condition) -> dict[str, str]:
        return {}

    @classmethod
    def open(cls, dataset: Dataset, path: Path, condition: Condition, *, rows: bool) -> "Reference":
        if condition.workers:
            raise Incompatible("it holds all cells in one process")
        needed, free = 8 * dataset.nnz, psutil.virtual_memory().available
        if needed > free:
            raise Incompatible(
                f"reading all cells takes {needed / 1e9:.0f} GB of memory, and {free / 1e9:.0f} GB are free"
            )
        return cls(dataset, condition, rows)

    def __init__(self, dataset: Dataset, condition: Condition, rows: bool) -> None:
        import anndata as ad

        # Filled file by file: stacking the matrices of all files would double both the time and the memory.
        data, indices = np.empty(dataset.nnz, np.float32), np.empty(dataset.nnz, np.int32)
        counts, filled = [], 0
        for path in dataset.paths:
            with h5py.File(path) as file:
                part = csr_matrix(ad.io.read_elem(file["X"]))
            data[filled : filled + part.nnz], indices[filled : filled + part.nnz] = part.data, part.indices
            counts.append(np.diff(part.indptr))
            filled += part.nnz
        indptr = np.concatenate([[0], np.cumsum(np.concatenate(counts), dtype=np.int64)])
        shape = (dataset.n_cells, dataset.n_genes)
        self.x = csr_matrix((data[:filled], indices[:filled], indptr), shape=shape)
        self.condition, self.rows = condition, rows
        self.fetch_rows = condition.batch_size

    def epoch(self, index: int) -> Iterator[Batch]:
        n, size = self.x.shape[0], self.condition.batch_size
        order = np.arange(n)
        if self.condition.order == "random":
            np.random.default_rng([self.condition.seed, index]).shuffle(order)
        for start in range(0, n, size):
            ids = order[start : start + size]
            x = self.x[ids]
            yield Batch(to_output(x, self.condition.output), ids if self.rows else None)

    def close(self) -> None:
        del self.x
