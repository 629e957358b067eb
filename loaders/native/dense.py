"""Dense minibatches in memory that is used again: only what the last one wrote is cleared."""

import sys

import numba
import numpy as np

KEPT = 4  # arrays, before a consumer that holds more of them is given new ones


class DenseBatches:
    """Makes (rows, n_genes) float32 arrays, which cannot be written to.

    Most of the memory of such a batch is zeros. So an array is used again once nobody holds it, or a view of it, any
    more, and only what was written to it is cleared.
    """

    def __init__(self, n_genes: int) -> None:
        self.n_genes = n_genes
        self.kept: list[tuple[np.ndarray, list]] = []  # (array, [indices, indptr of what was written to it])

    def make(self, batch: tuple[np.ndarray, np.ndarray, np.ndarray]) -> np.ndarray:
        """CSR arrays (data, indices, indptr) as an array; a row's entries of one index are added up, as scipy does."""
        data, indices, indptr = batch
        rows = len(indptr) - 1
        array, written = self._free(rows)
        _replace(*written, data, indices, indptr, array)
        written[:] = indices, indptr
        view = array[:rows]
        view.flags.writeable = False
        return view

    def _free(self, rows: int) -> tuple[np.ndarray, list]:
        for array, written in self.kept:
            # Held by the tuple, by this loop's name and by the call, and so by nobody else.
            if sys.getrefcount(array) == 3 and len(array) >= rows:
                return array, written
        nothing = [np.empty(0, np.int32), np.zeros(1, np.int32)]
        made = np.zeros((rows, self.n_genes), np.float32), nothing
        kept = [*self.kept, made]
        self.kept = kept[len(kept) - KEPT :]
        return made


@numba.njit(nogil=True, cache=True)
def _replace(old_indices, old_indptr, data, indices, indptr, dense):
    """Row by row, so that what is cleared is still in the processor's cache when it is written again."""
    for row in range(max(len(old_indptr), len(indptr)) - 1):
        if row < len(old_indptr) - 1:
            for k in range(old_indptr[row], old_indptr[row + 1]):
                dense[row, np.uint32(old_indices[k])] = 0
        if row < len(indptr) - 1:
            for k in range(indptr[row], indptr[row + 1]):
                dense[row, np.uint32(indices[k])] += data[k]
