"""Arguments are checked on entry: the error names the wrong value, and nothing is read."""

import numpy as np
import pytest

from harness.data.dataset import Dataset
from loadstone import BlockLoader, BlockShuffling, BlockWeightedSampling, ClassBalancedSampling, Matrix, open_h5ad
from tests import tiny


@pytest.fixture(scope="module")
def source(tiny_set: Dataset) -> Matrix:
    opened = open_h5ad(tiny_set.paths)
    yield opened
    opened.close()


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([-1], "row -1 is not one of the 1,009 rows"),
        ([3, tiny.N], "row 1009 is not one of the 1,009 rows"),
        ([1.5], "whole numbers, not float64 such as .*1.5"),
        (np.ones(tiny.N, bool), "whole numbers, not bool"),
        ([[1, 2]], "one dimension"),
        (["a"], "whole numbers"),
    ],
)
def test_rows(source: Matrix, rows: object, message: str) -> None:
    with pytest.raises(IndexError, match=message):
        source[rows]


def test_an_empty_selection_is_an_empty_matrix(source: Matrix) -> None:
    assert source[[]].shape == (0, tiny.GENES)


@pytest.mark.parametrize("name", ["batch_size", "fetch_factor", "ranks", "workers"])
@pytest.mark.parametrize("value", [0, -1, 2.5, True, "8", None])
def test_counts(source: Matrix, name: str, value: object) -> None:
    with pytest.raises(ValueError, match=rf"{name} is {value!r}; it must be a whole number from 1 up"):
        BlockLoader(source, **{name: value})


@pytest.mark.parametrize("value", [0, -1, 2.5])
def test_block_sizes(value: object) -> None:
    for construct in (
        lambda: BlockShuffling(value),
        lambda: BlockWeightedSampling(np.ones(3), value),
        lambda: ClassBalancedSampling(np.ones(3, int), value),
    ):
        with pytest.raises(ValueError, match=rf"block_size is {value}"):
            construct()


def test_ranks_and_workers(source: Matrix) -> None:
    with pytest.raises(ValueError, match=r"rank 2 is not one of 2"):
        BlockLoader(source, rank=2, ranks=2)
    with pytest.raises(ValueError, match=r"worker -1 is not one of 1"):
        BlockLoader(source, worker=-1)


def test_labels_of_a_different_length(source: Matrix) -> None:
    with pytest.raises(ValueError, match=r"labels 'drug' has 5 codes, but the source has 1,009 rows"):
        BlockLoader(source, labels={"drug": np.zeros(5)})


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1, -2, 0], "row 1 has -2"),
        ([1, np.nan], "row 1 has nan"),
        ([np.inf, 1], "row 0 has inf"),
        ([0, 0], "all zero"),
        (["a"], "must be numbers"),
        ([[1.0]], "one dimension"),
    ],
)
def test_weights(weights: list, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BlockWeightedSampling(np.array(weights))


def test_weights_and_codes_of_a_different_length(source: Matrix) -> None:
    for name, sampler in (
        ("weights", BlockWeightedSampling(np.ones(7))),
        ("codes", ClassBalancedSampling(np.ones(7, int))),
    ):
        with pytest.raises(ValueError, match=rf"{name} has 7 entries, but the source has 1,009 rows"):
            next(iter(BlockLoader(source, sampler=sampler)))
        with pytest.raises(ValueError, match=rf"{name} has 7 entries"):
            next(iter(BlockLoader(source, sampler=sampler, subset=np.arange(20))))


def test_rows_with_negative_codes_are_never_drawn(source: Matrix) -> None:
    codes = np.where(np.arange(tiny.N) < 500, -2, 1)
    loader = BlockLoader(source, sampler=ClassBalancedSampling(codes, 4))
    assert min(row for batch in loader for row in batch.rows) >= 500
    with pytest.raises(ValueError, match=r"all zero"):
        next(iter(BlockLoader(source, sampler=ClassBalancedSampling(np.full(tiny.N, -1)))))


def test_paths(tiny_set: Dataset) -> None:
    path = tiny_set.paths[0]
    for one in (path, str(path)):
        opened = open_h5ad(one)
        assert len(opened) == tiny.LENGTHS[0]
        opened.close()
    with pytest.raises(ValueError, match=r"list of paths is empty"):
        open_h5ad([])
    with pytest.raises(ValueError, match=r"part0.h5ad has no matrix 'layers/spliced'; it has: X"):
        open_h5ad(path, matrix="layers/spliced")
    with pytest.raises(FileNotFoundError, match=r"nothing.h5ad"):
        open_h5ad("nothing.h5ad")


@pytest.mark.parametrize(
    ("name", "value"), [("output", "coo"), ("verify", "sometimes"), ("threads", 0), ("threads", 1.5)]
)
def test_options_of_open_h5ad(tiny_set: Dataset, name: str, value: object) -> None:
    with pytest.raises(ValueError, match=rf"{name} is {value!r}"):
        open_h5ad(tiny_set.paths, **{name: value})
