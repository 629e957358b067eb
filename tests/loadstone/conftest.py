"""Shared fixture: a small h5ad file for tests to damage."""

from pathlib import Path

import anndata as ad
import h5py
import pandas as pd
import pytest

from tests.loadstone.trust import GENES, X, store_h5ad


@pytest.fixture
def h5ad(tmp_path: Path) -> Path:
    """The path of an h5ad file with the matrix `trust.X`; data and indices are in gzip chunks of 64 elements."""
    path = tmp_path / "a.h5ad"
    ad.AnnData(X, var=pd.DataFrame(index=[f"g{i}" for i in range(GENES)])).write_h5ad(path)
    with h5py.File(path, "a") as file:
        for name in ("data", "indices"):
            store_h5ad(file, name, file["X"][name][:], chunks=(64,), compression="gzip")
    return path
