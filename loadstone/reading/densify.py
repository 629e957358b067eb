"""Dense minibatches from CSR arrays."""

import numpy as np

from loadstone.codecs.compiled import compiled


def dense(data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, n_genes: int) -> np.ndarray:
    """(rows, n_genes) float32; entries of a row that share an index are added up, as scipy does."""
    x = np.empty((len(indptr) - 1, n_genes), np.float32)
    fill(data, indices, indptr, x)
    return x


@compiled
def fill(data, indices, indptr, x):
    """The same into `x`, whatever it held."""
    for row in range(len(indptr) - 1):
        x[row] = 0  # a row at a time: it is in the processor's cache when its values come
        for k in range(indptr[row], indptr[row + 1]):
            x[row, np.uint32(indices[k])] += data[k]
