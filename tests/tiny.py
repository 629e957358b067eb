"""A small data set whose values identify their row, so that a lost, duplicated or mislabelled row is detected."""

from collections.abc import Callable
from pathlib import Path

import anndata as ad
import numpy as np
import pandas as pd
import scipy.sparse as sp

LENGTHS = (401, 7, 1, 600)  # uneven, one shorter than a minibatch, one of a single cell
N, GENES = sum(LENGTHS), 211
EMPTY = 500  # the cell without counts


def truth() -> np.ndarray:
    """(1009, 211) float32: row i holds i + 1 in 1 + i % 9 columns that depend on i; row 500 is empty."""
    x = np.zeros((N, GENES), np.float32)
    for i in range(N):
        x[i, [(i * 7 + 31 * k) % GENES for k in range(1 + i % 9)]] = i + 1
    x[EMPTY] = 0
    return x


def obs() -> pd.DataFrame:
    """`plate`, one label per file; `drug`, which changes every 50 cells; `depth`, a column that is not a label."""
    plate = np.repeat(np.arange(len(LENGTHS)), LENGTHS)
    return pd.DataFrame(
        {
            "plate": pd.Categorical([f"p{p}" for p in plate]),
            "drug": pd.Categorical([f"d{i // 50:02d}" for i in range(N)]),
            "depth": np.arange(N, dtype=float),
        },
        index=[f"cell{i}" for i in range(N)],
    )


Form = Callable[[np.ndarray], object]


def as_csr(x: np.ndarray) -> sp.csr_matrix:
    return sp.csr_matrix(x)


def as_dense(x: np.ndarray) -> np.ndarray:
    return x


def as_int64(x: np.ndarray) -> sp.csr_matrix:
    return sp.csr_matrix(x.astype(np.int64))


def write(folder: Path, form: Form = as_csr) -> Path:
    """Writes the four h5ad files, with X converted by `form`; returns the folder."""
    folder.mkdir(parents=True)
    x, table, start = form(truth()), obs(), 0
    var = pd.DataFrame(index=[f"g{g}" for g in range(GENES)])
    for i, length in enumerate(LENGTHS):
        part = slice(start, start + length)
        file = ad.AnnData(x[part], table[part].copy(), var)
        file.write_h5ad(folder / f"part{i}.h5ad", compression="gzip")
        start += length
    return folder
