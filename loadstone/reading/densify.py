"""Dense minibatches from CSR arrays."""

import numpy as np

from loadstone.codecs.compiled import compiled, inlined
from loadstone.codecs.kernel import stream

MOST = 65_535  # the largest uint16
PAST_CACHE = 12 << 20  # bytes; a float32 minibatch of fewer may stay in the cache until it is consumed
NO_COUNT = f'"dense_uint16" is for whole numbers from 0 to {MOST:,}: take output="dense"'


class Densifier:
    """Makes CSR rows dense. Not thread-safe.

    A row is put together in an array of zeros that stays in the processor's cache, and copied to its place with
    non-temporal stores, which write to memory without reading from it first. Then only the elements that were written
    are cleared. A float32 minibatch of less than PAST_CACHE is written in place instead, since the consumer then finds
    it in the cache. n_genes: the number of columns. dtype: float32 or uint16, of the result.
    """

    def __init__(self, n_genes: int, dtype: type) -> None:
        self.row: np.ndarray = np.zeros(n_genes, dtype)

    def dense(self, data: np.ndarray, indices: np.ndarray, indptr: np.ndarray) -> np.ndarray:
        """CSR rows as a new dense array, (rows, n_genes). The values of repeated indices in a row are summed.

        data is float32. The indices must be 0 to n_genes - 1; this is not checked. ValueError if a value does not fit
        into uint16.
        """
        x = np.empty((len(indptr) - 1, len(self.row)), self.row.dtype)
        self.write(data, indices, indptr, x)
        return x

    def write(self, data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, x: np.ndarray) -> None:
        """Does the same as `dense`, but overwrites `x`, (rows, n_genes)."""
        if self.row.dtype == np.float32 and x.nbytes < PAST_CACHE:
            fill_in_place(data, indices, indptr, x)
        elif self.row.dtype == np.float32:
            fill(data, indices, indptr, self.row, x)
        elif (wrong := fill_counts(data, indices, indptr, self.row, x)) >= 0:
            raise ValueError(f"gene {indices[wrong]} of a cell has {data[wrong]}; {NO_COUNT}")


@compiled
def fill(data, indices, indptr, zeros, x):
    """Overwrites the dense array `x`, (rows, genes), with the CSR rows. The indices are not checked.

    zeros: as many zeros as there are genes, of the dtype of `x`, which are the same afterwards.
    """
    for i in range(len(indptr) - 1):
        for k in range(indptr[i], indptr[i + 1]):
            zeros[np.uint32(indices[k])] += data[k]
        _move(zeros, indices[indptr[i] : indptr[i + 1]], x[i])


@inlined
def _move(row, written, target):
    """Copies `row` to `target`, of the same length and dtype, and clears the elements of `row` that were written."""
    stream(np.int64(row.ctypes.data), np.int64(target.ctypes.data), row.itemsize * len(row))
    for k in range(len(written)):
        row[np.uint32(written[k])] = 0


@compiled
def fill_in_place(data, indices, indptr, x):
    """Does the same as `fill` in the memory of `x` alone."""
    for i in range(len(indptr) - 1):
        x[i] = 0  # one row at a time, so that it is still in the processor's cache when its values are written
        for k in range(indptr[i], indptr[i + 1]):
            x[i, np.uint32(indices[k])] += data[k]


@compiled
def fill_counts(data, indices, indptr, zeros, x):
    """Like `fill`, for uint16. Returns the place of a value in `data` that does not fit; -1 if there is none."""
    wrong = -1
    for i in range(len(indptr) - 1):
        for k in range(indptr[i], indptr[i + 1]):
            gene = np.uint32(indices[k])
            total = data[k] + np.float32(zeros[gene])
            if 0 <= total <= MOST and np.float32(np.uint16(total)) == total:
                zeros[gene] = np.uint16(total)
            else:
                wrong = k
        _move(zeros, indices[indptr[i] : indptr[i + 1]], x[i])
    return wrong


def as_counts(x: np.ndarray) -> np.ndarray:
    """A dense array as uint16. ValueError if a value does not fit."""
    wrong = ~((x >= 0) & (x <= MOST) & (x == np.floor(x)))
    if wrong.any():
        raise ValueError(f"gene {np.argwhere(wrong)[0][1]} of a cell has {x[wrong][0]}; {NO_COUNT}")
    return x.astype(np.uint16)
