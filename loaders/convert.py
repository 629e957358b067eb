"""From what a library yields to the output contract."""

import numpy as np
from scipy.sparse import csr_matrix, issparse, spmatrix


def to_output(x: spmatrix | np.ndarray, output: str) -> csr_matrix | np.ndarray:
    """The matrix as float32 CSR ("csr") or float32 array ("dense"); itself where it is that already."""
    if output == "dense":
        x = x.toarray() if issparse(x) else x
    elif not isinstance(x, csr_matrix):
        x = csr_matrix(x)
    return x.astype(np.float32, copy=False)
