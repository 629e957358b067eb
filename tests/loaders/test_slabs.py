"""Slabs of any size contain the cells of the files in order."""

from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from harness.data import catalogue
from harness.data.dataset import Dataset
from loaders.slabs import csr_slabs
from tests import tiny


def with_int64_indices(folder: Path) -> Path:
    for path in tiny.write(folder).iterdir():
        with h5py.File(path, "a") as file:
            for name in ("indices", "indptr"):
                values = file["X"][name][:].astype(np.int64)
                del file["X"][name]
                file["X"][name] = values
    return folder


FORMS = {
    "csr": tiny.write,
    "dense": lambda folder: tiny.write(folder, tiny.as_dense),
    "int64 values": lambda folder: tiny.write(folder, tiny.as_int64),
    "int64 indices": with_int64_indices,
}


@pytest.fixture(scope="module", params=FORMS)
def dataset(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Four files, of 401, 7, 1 and 600 cells."""
    return catalogue.load(str(FORMS[request.param](tmp_path_factory.mktemp("slabs") / "set")))


@settings(max_examples=15)
@given(size=st.integers(5, tiny.N + 1))
def test_slabs_contain_the_cells_in_order(dataset: Dataset, size: int) -> None:
    done, cells = 0, []
    for first, slab in csr_slabs(dataset, size):
        assert first == done
        assert [array.dtype for array in slab] == [np.float32, np.int32, np.int64]
        assert (slab.indptr[0], slab.indptr[-1]) == (0, len(slab.data))
        n = len(slab.indptr) - 1
        assert 1 <= n <= size
        file = np.searchsorted(dataset.offsets, first, "right")
        assert first + n <= dataset.offsets[file]
        cells.append(csr_matrix((slab.data, slab.indices, slab.indptr), (n, tiny.GENES)).toarray())
        done += n
    np.testing.assert_array_equal(np.concatenate(cells), tiny.truth())


def test_slabs_of_a_dense_x_contain_its_non_zero_values(tmp_path: Path) -> None:
    dense, sparse = (
        catalogue.load(str(tiny.write(tmp_path / form.__name__, form))) for form in (tiny.as_dense, tiny.as_csr)
    )
    for (_, one), (_, other) in zip(csr_slabs(dense, 100), csr_slabs(sparse, 100), strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
