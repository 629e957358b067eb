"""The counts of a matrix as sorted (row, gene, value) entries, and their comparison."""

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp


class Counts(NamedTuple):
    """Nonzero entries, sorted by row and gene, without duplicates. doubled: whether duplicates were summed."""

    n_rows: int
    n_genes: int
    row: np.ndarray
    gene: np.ndarray
    value: np.ndarray
    doubled: bool


def counts(n_rows: int, n_genes: int, row: np.ndarray, gene: np.ndarray, value: np.ndarray) -> Counts:
    """Counts from entries in any order. Entries with the same row and gene are summed, and zeros are left out."""
    order = np.lexsort((gene, row))
    row, gene, value = row[order], gene[order], value[order].astype(np.float32)
    starts = np.flatnonzero(np.r_[True, (np.diff(row) != 0) | (np.diff(gene) != 0)][: len(row)])
    doubled = len(starts) < len(row)
    if doubled:
        with np.errstate(all="ignore"):
            value = np.add.reduceat(value.astype(np.float64), starts).astype(np.float32)
        row, gene = row[starts], gene[starts]
    nonzero = value != 0  # true for NaN
    return Counts(n_rows, n_genes, row[nonzero], gene[nonzero], value[nonzero], doubled)


def of_matrix(x: sp.csr_matrix | sp.csr_array | np.ndarray) -> Counts:
    """The counts of a valid matrix."""
    x = sp.coo_matrix(x)
    return counts(*x.shape, x.row.astype(np.int64), x.col.astype(np.int64), x.data)


def entries(x: Any, n_genes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(row, gene, value) arrays of a minibatch. Raises ValueError if its shape, dtype or CSR arrays are not valid."""
    if isinstance(x, np.ndarray):
        if x.ndim != 2 or x.shape[1] != n_genes or x.dtype != np.float32:
            raise ValueError(f"a minibatch is {x.dtype} of shape {x.shape}")
        row, gene = np.nonzero(x)
        return row, gene, x[row, gene]
    indptr, indices = np.asarray(x.indptr, np.int64), np.asarray(x.indices, np.int64)
    if x.shape[1] != n_genes or len(indptr) != x.shape[0] + 1:
        raise ValueError(f"a minibatch of shape {x.shape} has {len(indptr)} row pointers")
    lengths = np.diff(indptr)
    if indptr[0] != 0 or (lengths < 0).any() or not indptr[-1] == len(indices) == len(x.data):
        raise ValueError("the row pointers of a minibatch do not fit its arrays")
    if len(indices) and not 0 <= indices.min() <= indices.max() < n_genes:
        raise ValueError("a gene of a minibatch is out of range")
    if x.data.dtype != np.float32:
        raise ValueError(f"a minibatch holds {x.data.dtype}")
    return np.repeat(np.arange(x.shape[0]), lengths), indices, x.data.copy()


def differing(a: Counts, b: Counts) -> set[int] | None:
    """The rows in which the counts differ; None for different shapes. Shapes without rows count as equal.

    If duplicates were summed in `a` or `b`, relative differences up to 1e-5 are tolerated.
    """
    if a.n_rows == b.n_rows == 0:
        return set()
    if (a.n_rows, a.n_genes) != (b.n_rows, b.n_genes):
        return None
    same_places = np.array_equal(a.row, b.row) and np.array_equal(a.gene, b.gene)
    if same_places and np.array_equal(a.value, b.value, equal_nan=True):
        return set()
    tolerance = 1e-5 if a.doubled or b.doubled else 0  # a sum depends on its order
    left, right = ({(r, g): v for r, g, v in zip(*map(np.ndarray.tolist, each[2:5]), strict=True)} for each in (a, b))

    def equal(x: float, y: float) -> bool:
        return x == y or (x != x and y != y) or abs(x - y) <= tolerance * max(abs(x), abs(y))

    return {key[0] for key in left.keys() | right.keys() if not equal(left.get(key, 0.0), right.get(key, 0.0))}
