"""Our loader: block sampling with batched fetching, from h5ad files as they are."""

from collections.abc import Iterator
from pathlib import Path

import numba
import numpy as np
from scipy.sparse import csr_matrix

from harness.condition import Condition
from harness.dataset import Dataset
from harness.host import available_cores
from loaders.native.fetch import one_ahead
from loaders.native.h5ad import H5adStore, Rows
from loaders.native.sampling import block_shuffled, streamed
from loaders.protocol import UNCONVERTED, Batch, Incompatible


class Native:
    """Reads `batch_size * fetch_factor` rows at a time, in blocks of `block_size` consecutive rows."""

    name = "native"
    imports = ()
    store = UNCONVERTED
    knobs = {"block_size": 16, "fetch_factor": 256}

    @classmethod
    def broken(cls, condition: Condition) -> dict[str, str]:
        return {}

    @classmethod
    def open(cls, dataset: Dataset, path: Path, condition: Condition, *, rows: bool) -> "Native":
        if condition.workers:
            raise Incompatible("it reads with threads inside one process; say cores, not workers")
        if dataset.x_format != "csr":
            raise Incompatible(
                f"it reads CSR, and X is {dataset.x_format} here (a.X = scipy.sparse.csr_matrix(a.X) converts)"
            )
        return cls(dataset, condition, rows)

    def __init__(self, dataset: Dataset, condition: Condition, rows: bool) -> None:
        knobs = self.knobs | dict(condition.knobs)
        self.block_size = knobs["block_size"]
        self.condition, self.rows = condition, rows
        self.fetch_rows = condition.batch_size * knobs["fetch_factor"]
        self.shape = dataset.n_cells, dataset.n_genes
        self.files = H5adStore(dataset.paths, available_cores())

    def epoch(self, index: int) -> Iterator[Batch]:
        if self.condition.order == "stream":
            fetches = streamed(self.shape[0], self.fetch_rows)
        else:
            fetches = block_shuffled(self.shape[0], self.fetch_rows, self.block_size, self.condition.seed, index)
        size = self.condition.batch_size
        for ids, buffer in one_ahead((ids, self.files.read(ids)) for ids in fetches):
            for start in range(0, len(ids), size):
                stop = min(start + size, len(ids))
                yield Batch(self._cut(buffer, start, stop), ids[start:stop] if self.rows else None)

    def _cut(self, buffer: Rows, start: int, stop: int) -> csr_matrix | np.ndarray:
        """Rows start to stop of the buffer: a CSR view into it, or a new dense array."""
        indptr = buffer.indptr[start : stop + 1]
        within = slice(indptr[0], indptr[-1])
        data, indices, indptr = (
            buffer.data[within],
            buffer.indices[within],
            (indptr - indptr[0]).astype(np.int32),
        )
        if self.condition.output == "csr":
            return csr_matrix((data, indices, indptr), shape=(stop - start, self.shape[1]), copy=False)
        dense = np.zeros((stop - start, self.shape[1]), np.float32)
        _densify(data, indices, indptr, dense)
        return dense

    def close(self) -> None:
        self.files.close()


@numba.njit(nogil=True, cache=True)
def _densify(data, indices, indptr, dense):
    for row in range(len(dense)):
        for k in range(indptr[row], indptr[row + 1]):
            dense[row, indices[k]] += data[k]
