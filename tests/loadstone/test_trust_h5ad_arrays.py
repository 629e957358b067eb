"""Malformed arrays in h5ad files: wrong row starts, gene indices, lengths and shapes are errors that name the place."""

from pathlib import Path

import h5py
import numpy as np
import pytest

from tests.loadstone.trust import GENE, OUTPUTS, ROWS, X, read_h5ad, store_h5ad

INDPTR = {
    "does not begin at 0": (lambda v: np.concatenate([[5], v[1:]]), "begins with 5"),
    "negative": (lambda v: np.concatenate([[-100], v[1:]]), "begins with -100"),
    "far below": (lambda v: np.concatenate([[-(10**6)], v[1:]]), "begins with"),
    "decreasing": (lambda v: np.concatenate([v[:20], v[[21, 20]], v[22:]]), "falls at row 20"),
    "a jump of 2**31": (lambda v: np.where(np.arange(len(v)) == 30, v + 2**31, v), "falls at row 30"),
    "beyond the data": (lambda v: np.concatenate([v[:-1], [v[-1] + 1]]), "ends with"),
    "far beyond the data": (lambda v: np.concatenate([v[:-1], [2**62]]), "ends with"),
    "before the end of the data": (lambda v: np.minimum(v, v[-1] - 1), "belong to no row"),
    "all zero": (lambda v: 0 * v, "ends with 0, so that the last of .* elements belong to no row"),
    "shorter": (lambda v: v[:-3], "60 rows need 61"),
    "longer": (lambda v: np.concatenate([v, v[-1:]]), "60 rows need 61"),
    "fractional": (lambda v: v + 0.5, "not whole numbers"),
}


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("defect", INDPTR)
def test_row_starts(h5ad: Path, defect: str, output: str) -> None:
    change, message = INDPTR[defect]
    with h5py.File(h5ad, "a") as file:
        store_h5ad(file, "indptr", change(X.indptr.astype(np.int64)))
    with pytest.raises(ValueError, match=rf"a.h5ad: /X/indptr.* {message}"):
        read_h5ad(h5ad, output)


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("storage", [{"compression": "gzip", "chunks": (64,)}, {"chunks": (64,)}, {}], ids=str)
@pytest.mark.parametrize("defect", GENE)
def test_gene_indices(h5ad: Path, defect: str, storage: dict, output: str) -> None:
    values = X.indices.copy()
    values[777] = GENE[defect]
    with h5py.File(h5ad, "a") as file:
        store_h5ad(file, "indices", values, **storage)
    row = np.searchsorted(X.indptr, 777, "right") - 1
    place = ", chunk 12, element 777" if storage else ", element 777"
    with pytest.raises(ValueError, match=rf"a.h5ad: /X/indices{place}, of row {row}, is gene {GENE[defect]}"):
        read_h5ad(h5ad, output)


@pytest.mark.parametrize("output", OUTPUTS)
def test_gene_indices_beyond_32_bits(h5ad: Path, output: str) -> None:
    values = X.indices.astype(np.int64)
    values[3] += 2**32 + 1
    with h5py.File(h5ad, "a") as file:
        store_h5ad(file, "indices", values, chunks=(64,), compression="gzip")
    with pytest.raises(ValueError, match=r"/X/indices, chunk 0, element 3, of row 0, is gene 42949"):
        read_h5ad(h5ad, output)


def test_data_and_indices_of_different_lengths(h5ad: Path) -> None:
    with h5py.File(h5ad, "a") as file:
        store_h5ad(file, "data", X.data[:-1], chunks=(64,))
    with pytest.raises(ValueError, match=r"/X/data has 899 elements and .*/X/indices has 900"):
        read_h5ad(h5ad)


@pytest.mark.parametrize("shape", [(2**40, 2**40), (ROWS, -1), (ROWS, 2**31), (ROWS,), "six by five"])
def test_invalid_shapes(h5ad: Path, shape: object) -> None:
    with h5py.File(h5ad, "a") as file:
        file["X"].attrs["shape"] = shape
    with pytest.raises(ValueError, match=r"a.h5ad.*"):
        read_h5ad(h5ad)
