"""The rows of a fetch in memory, and the minibatches that are cut from them."""

from collections.abc import Iterator, Sequence
from copy import copy
from functools import cache
from itertools import pairwise
from typing import Literal, NamedTuple, get_args

import numpy as np
from scipy.sparse import csr_matrix

from loadstone.reading.buffers import Memory
from loadstone.reading.densify import Densifier
from loadstone.reading.validate import choice

Output = Literal["csr", "dense", "dense_uint16"]
MANY = 16  # minibatches in a fetch; of no more, a copy of the last would cost more than it saves
DTYPES = {"dense": np.float32, "dense_uint16": np.uint16}


class Rows(NamedTuple):
    """The CSR arrays of some rows in memory: data float32 (nnz,), indices int32 (nnz,), indptr int64 (rows + 1,)."""

    data: np.ndarray
    indices: np.ndarray
    indptr: np.ndarray

    def cut(self, start: int, stop: int) -> "Rows":
        """The rows `start` to `stop` (exclusive). data and indices are views; indptr is a new int32 array."""
        indptr = self.indptr[start : stop + 1]
        within = slice(indptr[0], indptr[-1])
        return Rows(self.data[within], self.indices[within], (indptr - indptr[0]).astype(np.int32))

    def copied(self, memory: Memory) -> "Rows":
        data, indices = (memory.empty(len(array), array.dtype) for array in self[:2])
        np.copyto(data, self.data)
        np.copyto(indices, self.indices)
        return Rows(data, indices, self.indptr)


class Minibatches:
    """Makes minibatches from the rows of a fetch.

    output: "csr" makes them scipy.sparse.csr_matrix, whose data and indices are views into the fetch, but copies in
    the last of more than MANY: when the next fetch begins, a consumer that keeps no other minibatch has left the memory
    of this one free to be read into. "dense" and "dense_uint16" make new NumPy arrays. They are (rows, n_genes),
    float32 or uint16. ValueError for another `output`, or for a value that does not fit into uint16.
    """

    def __init__(self, n_genes: int, output: Output) -> None:
        choice("output", output, get_args(Output))
        self.densifier = None if output == "csr" else Densifier(n_genes, DTYPES[output])
        self.memory = Memory()
        self.empty = cache(lambda rows: csr_matrix((rows, n_genes), dtype=np.float32))

    def cut(self, fetched: Rows, cuts: Sequence[int]) -> Iterator[csr_matrix | np.ndarray]:
        """Yields the minibatches of a fetch. Minibatch i has the rows cuts[i] to cuts[i + 1] of the fetch."""
        copied = cuts[-1] if len(cuts) - 1 > MANY else None
        for start, stop in pairwise(cuts):
            batch = fetched.cut(start, stop)
            if self.densifier:
                yield self.densifier.dense(*batch)
            else:
                yield self._csr(batch.copied(self.memory) if stop == copied else batch)

    def _csr(self, batch: Rows) -> csr_matrix:
        # The arrays are known to be consistent. scipy's constructor checks them, which takes ten times as long.
        x = copy(self.empty(len(batch.indptr) - 1))
        x.data, x.indices, x.indptr = batch
        return x
