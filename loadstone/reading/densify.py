"""Dense minibatches from CSR arrays."""

import numpy as np

from loadstone.codecs.compiled import compiled


def dense(data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, n_genes: int) -> np.ndarray:
    """CSR rows as a dense array, float32 (rows, n_genes). The values of repeated indices in a row are summed.

    The indices must be 0 to n_genes - 1; this is not checked.
    """
    x = np.empty((len(indptr) - 1, n_genes), np.float32)
    fill(data, indices, indptr, x)
    return x


@compiled
def fill(data, indices, indptr, x):
    """Overwrites the dense array `x`, (rows, genes), with the CSR rows. The indices are not checked."""
    for row in range(len(indptr) - 1):
        x[row] = 0  # one row at a time, so that it is still in the processor's cache when its values are written
        for k in range(indptr[row], indptr[row + 1]):
            x[row, np.uint32(indices[k])] += data[k]
