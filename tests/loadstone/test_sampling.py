"""The order of rows, as a function of numbers alone."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from loadstone.sampling.orders import (
    BlockShuffled,
    BlockWeighted,
    Order,
    Streamed,
    Subset,
    aligned,
    balanced,
)
from tests.conftest import fetches

sizes = st.integers(1, 3000), st.integers(1, 400), st.integers(1, 500)
lengths = st.lists(st.integers(0, 30), min_size=1, max_size=300)


def flat(order: Order) -> np.ndarray:
    return np.concatenate(list(fetches(order)))


@given(*sizes, st.integers(0, 9), st.integers(0, 9))
def test_every_row_once_in_full_fetches(n: int, fetch: int, block: int, seed: int, epoch: int) -> None:
    found = list(fetches(BlockShuffled(n, fetch, block, seed, epoch)))
    assert [len(rows) for rows in found[:-1]] == [fetch] * (len(found) - 1)
    assert np.array_equal(np.sort(np.concatenate(found)), np.arange(n))


@given(lengths, st.integers(1, 60), st.integers(1, 40), st.integers(1, 100))
def test_aligned_blocks(nnz: list[int], chunk: int, block: int, fetch: int) -> None:
    """Every row once; no block longer than asked for; a chunk broken only where it holds more rows than that."""
    begins = np.cumsum([0, *nnz])[:-1]
    starts = aligned(begins, chunk, block)
    assert starts[0] == 0
    assert starts[-1] == len(begins)
    assert (np.diff(starts) > 0).all()
    assert np.diff(starts).max() <= block
    rows_of_chunk = np.bincount(begins // chunk)
    for row in starts[1:-1]:
        here = begins[row] // chunk
        assert begins[row - 1] // chunk != here or rows_of_chunk[here] > block
    assert np.array_equal(np.sort(flat(BlockShuffled(len(begins), fetch, starts, 0, 0))), np.arange(len(begins)))


@given(*sizes)
def test_the_order_is_a_function_of_seed_and_epoch(n: int, fetch: int, block: int) -> None:
    def order(seed: int, epoch: int) -> list[int]:
        return flat(BlockShuffled(n, fetch, block, seed, epoch)).tolist()

    assert order(3, 1) == order(3, 1)
    if min(n, max(fetch, n // block)) > 20:  # fewer rows may fall into the same order by chance
        assert order(3, 1) != order(3, 2)
        assert order(3, 1) != order(4, 1)


@given(*sizes)
def test_a_fetch_holds_whole_blocks(n: int, fetch: int, block: int) -> None:
    """But at its two ends, where blocks are spread over fetches, and the short block at the end of the data."""
    for rows in fetches(BlockShuffled(n, fetch, block, 0, 0)):
        _, counts = np.unique(rows // block, return_counts=True)
        assert (counts < block).sum() <= 3


def test_blocks_are_drawn_uniformly() -> None:
    """Over many epochs the block of each place is any block: chi-square far below its 1e-6 quantile."""
    n_blocks, epochs = 10, 4000
    first = [BlockShuffled(40, 4, 4, 0, epoch).fetch(0)[0] // 4 for epoch in range(epochs)]
    counts = np.bincount(first, minlength=n_blocks)
    assert ((counts - epochs / n_blocks) ** 2 / (epochs / n_blocks)).sum() < 45


@given(*sizes[:2])
def test_streamed_is_the_order_of_the_data(n: int, fetch: int) -> None:
    assert np.array_equal(flat(Streamed(n, fetch)), np.arange(n))


@given(*sizes[:2], st.integers(0, 9))
def test_a_shuffled_buffer_stays_within_its_fetch(n: int, fetch: int, epoch: int) -> None:
    for k, rows in enumerate(fetches(Streamed(n, fetch, (0, epoch)))):
        assert sorted(rows) == list(range(k * fetch, min((k + 1) * fetch, n)))


@given(*sizes)
def test_a_subset_is_shuffled_as_a_whole_is(n: int, fetch: int, block: int) -> None:
    rows = np.arange(n) * 3 + 1
    assert np.array_equal(np.sort(flat(Subset(BlockShuffled(n, fetch, block, 0, 0), rows))), rows)


def test_rows_are_drawn_as_their_weights_say() -> None:
    """Half a million draws lie within five standard deviations of what the weights let expect."""
    weights = np.tile([0.0, 1, 2, 3, 0], 20)
    draws = 500_000
    found = np.bincount(flat(BlockWeighted(weights, 1000, 7, 0, 0, draws)), minlength=len(weights))
    share = weights / weights.sum()
    assert (found[weights == 0] == 0).all()
    # Rows of one block come together: the variance is up to that of a seventh of the draws.
    assert (np.abs(found - draws * share) < 5 * np.sqrt(7 * draws * share) + 1e-9).all()


def test_balanced_classes_are_drawn_alike_and_rows_without_one_never() -> None:
    codes = np.repeat([0, 1, 2, -1], [10, 100, 890, 50]).astype(np.int32)
    found = np.bincount(codes[flat(BlockWeighted(balanced(codes), 100, 4, 0, 0, 60_000))] + 1, minlength=4)
    assert found[0] == 0
    assert (np.abs(found[1:] - 20_000) < 1500).all()
