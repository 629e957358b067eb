"""Dense minibatches from CSR arrays."""

import numpy as np

from loadstone.codecs.compiled import compiled


def dense(data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, n_genes: int) -> np.ndarray:
    """The rows as a dense array, float32 (rows, n_genes). Repeated indices in a row are summed, as in scipy."""
    x = np.empty((len(indptr) - 1, n_genes), np.float32)
    fill(data, indices, indptr, x)
    return x


@compiled
def fill(data, indices, indptr, x):
    """Writes the CSR rows into the dense array `x`, (rows, genes), whose content is overwritten."""
    for row in range(len(indptr) - 1):
        x[row] = 0  # one row at a time, so that it is still in the processor's cache when its values are written
        for k in range(indptr[row], indptr[row + 1]):
            x[row, np.uint32(indices[k])] += data[k]
