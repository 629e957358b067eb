"""The order of rows, as a function of numbers alone."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from loaders.native.sampling import block_shuffled, streamed

sizes = st.integers(1, 3000), st.integers(1, 400), st.integers(1, 500)


@given(*sizes, st.integers(0, 9), st.integers(0, 9))
def test_every_row_once_in_full_fetches(n: int, fetch: int, block: int, seed: int, epoch: int) -> None:
    fetches = list(block_shuffled(n, fetch, block, seed, epoch))
    assert [len(rows) for rows in fetches[:-1]] == [fetch] * (len(fetches) - 1)
    assert np.array_equal(np.sort(np.concatenate(fetches)), np.arange(n))


@given(*sizes)
def test_the_order_is_a_function_of_seed_and_epoch(n: int, fetch: int, block: int) -> None:
    def order(seed: int, epoch: int) -> list[int]:
        return np.concatenate(list(block_shuffled(n, fetch, block, seed, epoch))).tolist()

    assert order(3, 1) == order(3, 1)
    if min(n, max(fetch, n // block)) > 20:  # fewer rows may fall into the same order by chance
        assert order(3, 1) != order(3, 2)
        assert order(3, 1) != order(4, 1)


@given(*sizes)
def test_a_fetch_holds_whole_blocks(n: int, fetch: int, block: int) -> None:
    """But at its two ends, where blocks are spread over fetches, and the short block at the end of the data."""
    for rows in block_shuffled(n, fetch, block, 0, 0):
        _, counts = np.unique(rows // block, return_counts=True)
        assert (counts < block).sum() <= 3


def test_blocks_are_drawn_uniformly() -> None:
    """Over many epochs the block of each place is any block: chi-square far below its 1e-6 quantile."""
    n_blocks, epochs = 10, 4000
    first = [next(block_shuffled(40, 4, 4, 0, epoch))[0] // 4 for epoch in range(epochs)]
    counts = np.bincount(first, minlength=n_blocks)
    assert ((counts - epochs / n_blocks) ** 2 / (epochs / n_blocks)).sum() < 45


@given(*sizes[:2])
def test_streamed_is_the_order_of_the_data(n: int, fetch: int) -> None:
    assert np.array_equal(np.concatenate(list(streamed(n, fetch))), np.arange(n))
