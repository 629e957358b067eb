"""What is sent holds the same values, in as few bytes as they need."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from loadstone.fleet.wire import slab
from loadstone.reading.minibatches import Rows

VALUES = st.one_of(
    st.integers(0, 255).map(float), st.integers(0, 65_535).map(float), st.floats(width=32), st.sampled_from([-0.0, 0.5])
)


@given(arrays.arrays(np.float32, st.integers(0, 300), elements=VALUES), st.integers(1, 100_000), st.randoms())
def test_what_is_cut_from_it_has_the_same_bits(data: np.ndarray, n_genes: int, random) -> None:
    indices = np.array([random.randrange(n_genes) for _ in data], np.int32)
    edges = sorted(random.randrange(len(data) + 1) for _ in range(4))
    indptr = np.array([0, *edges, len(data)], np.int64)
    sent = slab(np.arange(5), Rows(data, indices, indptr), n_genes)
    for start in range(5):
        for stop in range(start + 1, 6):
            expected, actual = Rows(data, indices, indptr).cut(start, stop), sent.cut(start, stop)
            for a, b in zip(expected, actual, strict=True):
                assert (a.dtype, a.tobytes()) == (b.dtype, b.tobytes())


@pytest.mark.parametrize(
    ("values", "n_genes", "dtypes"),
    [
        ([0, 255], 65_536, ("uint8", "uint16")),
        ([0, 256], 65_537, ("uint16", "int32")),
        ([65_536], 1, ("float32", "uint16")),
        ([0.5], 1, ("float32", "uint16")),
        ([-1], 1, ("float32", "uint16")),
        ([np.nan], 1, ("float32", "uint16")),
    ],
)
def test_types_are_the_narrowest(values: list, n_genes: int, dtypes: tuple) -> None:
    data = np.array(values, np.float32)
    sent = slab(np.arange(1), Rows(data, np.zeros(len(data), np.int32), np.array([0, len(data)])), n_genes)
    assert (sent.data.dtype, sent.indices.dtype) == dtypes
