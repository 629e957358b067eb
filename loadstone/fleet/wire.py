"""The form in which a fetch is sent: CSR with integers as narrow as its values allow, so without loss."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from loadstone.codecs.compiled import compiled
from loadstone.reading.minibatches import Rows
from loadstone.tokens import Frame, TokenBatch
from loadstone.tokens.packing import Packed

MOST_OF_A_BYTE = 255
NARROW_GENES = 2**16  # gene indices of fewer genes are sent as uint16


class Slab(NamedTuple):
    """The rows of a fetch. ids: of the rows in the source, int64 (rows,). indptr: int64 (rows + 1,).

    indices: uint16 if there are at most NARROW_GENES genes, otherwise int32, (nnz,). data: uint8 or uint16 if all
    values are whole numbers that fit, otherwise float32, (nnz,).
    """

    ids: np.ndarray
    indptr: np.ndarray
    indices: np.ndarray
    data: np.ndarray

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self)

    def cut(self, start: int, stop: int) -> Rows:
        """The rows `start` to `stop` (exclusive) as float32, with int32 indices and indptr; all are new arrays."""
        first, last = int(self.indptr[start]), int(self.indptr[stop])
        indptr = (self.indptr[start : stop + 1] - first).astype(np.int32)
        return Rows(self.data[first:last].astype(np.float32), self.indices[first:last].astype(np.int32), indptr)


class TokenSlab(NamedTuple):
    """The tokens of a fetch. ids: of the rows in the source, int64 (rows,)."""

    ids: np.ndarray
    packed: Packed

    def cut(self, start: int, stop: int, frame: Frame) -> TokenBatch:
        """See `Packed.cut`."""
        return self.packed.cut(start, stop, frame)


def slab(ids: np.ndarray, rows: Rows, n_genes: int, empty: Callable[[int, type], np.ndarray] = np.empty) -> Slab:
    """The rows in the narrowest form that holds their values exactly.

    ids: of the rows in the source, int64 (rows,). empty: allocates an array of this length and dtype.
    """
    indices, data = rows.indices, rows.data
    if n_genes <= NARROW_GENES:
        indices = empty(len(indices), np.uint16)
        _narrow(rows.indices, indices)
    counts = empty(len(data), np.uint16)
    most = _as_counts(data, data.view(np.int32), counts)
    if 0 <= most <= MOST_OF_A_BYTE:
        data = empty(len(data), np.uint8)
        _narrow(counts, data)
    elif most >= 0:
        data = counts
    return Slab(ids, rows.indptr, indices, data)


@compiled
def _narrow(values, narrow):
    for i in range(len(values)):
        narrow[i] = values[i]


@compiled
def _as_counts(values, signs, counts):
    """Writes the values to `counts`, uint16. Returns at least their most; -1 if they are not whole numbers that fit.

    signs: the same memory as int32, of which those of negative values and of -0.0 are negative. Without branches, and
    with unsigned indices, which need no code for wraparound, the inner loop is vectorized.
    """
    most = np.int32(0)
    for start in range(0, len(values), 4_096):
        n = np.uint64(min(4_096, len(values) - start))
        value, sign, count = values[start:], signs[start:], counts[start:]
        wrong = np.int32(0)
        for i in range(n):
            whole = np.int32(min(max(value[i], np.float32(0)), np.float32(65_535)))
            count[i] = whole
            most |= whole
            wrong |= np.int32(np.float32(whole) != value[i]) | np.int32(sign[i] < 0)
        if wrong:
            return np.int64(-1)
    return np.int64(most)
