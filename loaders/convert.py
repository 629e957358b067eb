"""Converts the arrays and matrices that libraries yield to the types of the contract."""

from copy import copy
from functools import lru_cache

import numpy as np
from scipy.sparse import csr_matrix, issparse, spmatrix

OF_NUMBA = ("numba", "numba.np.linalg", "numba.core.typing.cffi_utils", "scipy.linalg")
"""What numba imports with the first compiled loop that is used; for the `imports` of libraries that have such loops."""


def csr(data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, n_genes: int) -> csr_matrix:
    """The CSR matrix of three arrays, which it does not copy; only `indptr` is cast, to the type of `indices`.

    scipy's constructor would check and cast all three arrays, and take several times as long for a minibatch. Every
    adapter that has three arrays uses this function, so that no loader alone pays for these checks.
    """
    x = copy(_empty(len(indptr) - 1, n_genes))
    x.data, x.indices, x.indptr = data, indices, indptr.astype(indices.dtype, copy=False)
    return x


@lru_cache(64)
def _empty(rows: int, n_genes: int) -> csr_matrix:
    return csr_matrix((rows, n_genes), dtype=np.float32)


def to_output(x: spmatrix | np.ndarray, output: str) -> csr_matrix | np.ndarray:
    """`x` as a float32 CSR matrix (output "csr") or a float32 array ("dense"). An `x` of that type is not copied."""
    if output == "dense":
        x = x.toarray() if issparse(x) else x
    elif not isinstance(x, csr_matrix):
        x = csr_matrix(x)
    return x.astype(np.float32, copy=False)
