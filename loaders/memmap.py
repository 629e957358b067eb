"""A simple baseline: CSR arrays in files that are memory-mapped with NumPy."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix

from harness.condition import Condition
from harness.data.dataset import Dataset
from loaders.convert import to_output
from loaders.protocol import Batch, Incompatible
from loaders.slabs import csr_slabs

SLAB = 2_048  # cells


class MemMap:
    """Copies the rows of a minibatch one by one (order "random"), or together as one slice (order "stream")."""

    name = "memmap"
    imports = ()
    store = "memmap/1"
    knobs = {}

    @classmethod
    def broken(cls, condition: Condition) -> dict[str, str]:
        return {}

    @classmethod
    def prepare(cls, dataset: Dataset, path: Path, progress: Callable[[int], None]) -> None:
        data, indices, indptr = (path / name for name in ("data", "indices", "indptr"))
        nnz = 0
        with data.open("wb") as data, indices.open("wb") as indices, indptr.open("wb") as indptr:
            np.zeros(1, np.int64).tofile(indptr)
            for first, slab in csr_slabs(dataset, SLAB):
                slab.data.tofile(data)
                slab.indices.tofile(indices)
                (slab.indptr[1:] + nnz).tofile(indptr)
                nnz += len(slab.data)
                progress(first + len(slab.indptr) - 1)

    @classmethod
    def open(cls, dataset: Dataset, path: Path, condition: Condition, *, rows: bool) -> "MemMap":
        if condition.workers:
            raise Incompatible("it is a loop in one process")
        return cls(dataset, path, condition, rows)

    def __init__(self, dataset: Dataset, path: Path, condition: Condition, rows: bool) -> None:
        kinds = {"data": np.float32, "indices": np.int32, "indptr": np.int64}
        # Plain arrays: slicing an np.memmap makes another np.memmap, which takes longer than copying a cell.
        self.data, self.indices, self.indptr = (
            np.asarray(np.memmap(path / name, kind, "r")) for name, kind in kinds.items()
        )
        self.n_genes, self.condition, self.rows = dataset.n_genes, condition, rows
        self.fetch_rows = condition.batch_size

    def epoch(self, index: int) -> Iterator[Batch]:
        n, size = len(self.indptr) - 1, self.condition.batch_size
        order = np.arange(n)
        if self.condition.order == "random":
            np.random.default_rng([self.condition.seed, index]).shuffle(order)
        for start in range(0, n, size):
            ids = order[start : start + size]
            x = self._gather(ids) if self.condition.order == "random" else self._range(ids[0], ids[-1] + 1)
            yield Batch(to_output(x, self.condition.output), ids if self.rows else None)

    def _gather(self, ids: np.ndarray) -> csr_matrix:
        begin, end = self.indptr[ids], self.indptr[ids + 1]
        places = [slice(a, b) for a, b in zip(begin.tolist(), end.tolist(), strict=True)]
        data = np.concatenate([self.data[place] for place in places])
        indices = np.concatenate([self.indices[place] for place in places])
        indptr = np.concatenate([[0], np.cumsum(end - begin)])
        return csr_matrix((data, indices, indptr), shape=(len(ids), self.n_genes))

    def _range(self, start: int, stop: int) -> csr_matrix:
        indptr = self.indptr[start : stop + 1]
        place = slice(indptr[0], indptr[-1])
        data, indices = np.array(self.data[place]), np.array(self.indices[place])  # copies, because views would be lazy
        return csr_matrix((data, indices, indptr - indptr[0]), shape=(stop - start, self.n_genes))

    def close(self) -> None:
        del self.data, self.indices, self.indptr
