"""The form in which a fetch is sent: CSR with integers as narrow as its values allow, so without loss."""

from typing import NamedTuple

import numpy as np

from loadstone.codecs.compiled import compiled
from loadstone.reading.minibatches import Rows

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


def slab(ids: np.ndarray, rows: Rows, n_genes: int) -> Slab:
    """The rows in the narrowest form that holds their values exactly. ids: of the rows in the source, int64 (rows,)."""
    indices = rows.indices
    if n_genes <= NARROW_GENES:
        indices = np.empty(len(rows.indices), np.uint16)
        _narrow(rows.indices, indices)
    data = rows.data
    for dtype in (np.uint8, np.uint16):
        narrow = np.empty(len(rows.data), dtype)
        if _narrow_exactly(rows.data, narrow, np.float32(np.iinfo(dtype).max)):
            data = narrow
            break
    return Slab(ids, rows.indptr, indices, data)


@compiled
def _narrow(values, narrow):
    for i in range(len(values)):
        narrow[i] = values[i]


@compiled
def _narrow_exactly(values, narrow, most):
    """Writes the values to `narrow`. Returns whether none was changed; the sign of zero counts as well."""
    for start in range(0, len(values), 4_096):
        wrong = 0
        for i in range(start, min(start + 4_096, len(values))):
            value = values[i]
            fits = value >= 0 and value <= most
            whole = np.int32(value) if fits else np.int32(0)
            narrow[i] = whole
            wrong += not (fits and np.float32(whole) == value and (value != 0 or not np.signbit(value)))
        if wrong:
            return False
    return True
