"""Converts the matrices that libraries yield to the types of the contract."""

import numpy as np
from scipy.sparse import csr_matrix, issparse, spmatrix


def to_output(x: spmatrix | np.ndarray, output: str) -> csr_matrix | np.ndarray:
    """`x` as a float32 CSR matrix (output "csr") or a float32 array ("dense"). An `x` of that type is not copied."""
    if output == "dense":
        x = x.toarray() if issparse(x) else x
    elif not isinstance(x, csr_matrix):
        x = csr_matrix(x)
    return x.astype(np.float32, copy=False)
