"""Dense minibatches hold what the CSR rows hold, in float32 or uint16."""

from pathlib import Path

import h5py
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from loadstone import BlockLoader, open_h5ad
from loadstone.reading.densify import PAST_CACHE, Densifier
from tests import tiny

N_GENES = 23


@given(
    arrays.arrays(np.float32, st.tuples(st.integers(0, 5), st.just(N_GENES)), elements=st.integers(0, 65_535)),
    st.sampled_from([np.float32, np.uint16]),
)
def test_every_matrix_is_made_dense(x: np.ndarray, dtype: type) -> None:
    densifier, rows = Densifier(N_GENES, dtype), sp.csr_matrix(x)
    for _ in range(2):  # the second time with what the first has left
        dense = densifier.dense(rows.data, rows.indices, rows.indptr)
        assert dense.dtype == dtype
        np.testing.assert_array_equal(dense, x)


def test_minibatches_larger_than_the_cache_are_made_in_the_same_way() -> None:
    x = sp.random(3, 2 * PAST_CACHE // 12, 1e-4, "csr", np.float32, np.random.default_rng(0))
    densifier = Densifier(x.shape[1], np.float32)
    for rows in (x[:1], x, x):
        np.testing.assert_array_equal(densifier.dense(rows.data, rows.indices, rows.indptr), rows.toarray())


@pytest.mark.parametrize("dtype", [np.float32, np.uint16])
def test_values_of_repeated_indices_are_summed(dtype: type) -> None:
    data, indices = np.array([1, 2, 4], np.float32), np.array([3, 3, 5], np.int32)
    dense = Densifier(N_GENES, dtype).dense(data, indices, np.array([0, 3], np.int32))
    assert dense[0, [3, 5]].tolist() == [3, 4]
    assert dense.sum() == 7


@pytest.mark.parametrize("values", [[1.5], [-1], [65_536], [np.nan], [np.inf], [60_000, 6_000]])
def test_what_does_not_fit_into_uint16_is_an_error(values: list[float]) -> None:
    densifier = Densifier(N_GENES, np.uint16)
    data, indices = np.array(values, np.float32), np.full(len(values), 3, np.int32)
    with pytest.raises(ValueError, match=r'gene 3 of a cell has .*take output="dense"'):
        densifier.dense(data, indices, np.array([0, len(values)], np.int32))
    assert not densifier.row.any()


@pytest.mark.parametrize("form", [tiny.as_csr, tiny.as_dense])
@pytest.mark.filterwarnings("ignore:.*is dense")
def test_minibatches_of_uint16(tmp_path: Path, form: tiny.Form) -> None:
    paths = sorted(tiny.write(tmp_path / "set", form).iterdir())
    loader = BlockLoader(open_h5ad(paths, output="dense_uint16"))
    for batch in loader:
        assert batch.x.dtype == np.uint16
        np.testing.assert_array_equal(batch.x, tiny.truth()[batch.rows])
    loader.close()
    with h5py.File(paths[0], "a") as file:
        file["X/data" if form is tiny.as_csr else "X"][3 if form is tiny.as_csr else (3, 5)] = 0.5
    loader = BlockLoader(open_h5ad(paths, output="dense_uint16"))
    with pytest.raises(ValueError, match=r"has 0\.5"):
        list(loader)
    loader.close()
