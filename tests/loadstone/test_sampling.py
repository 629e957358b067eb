"""The row orders of the samplers are functions of their parameters alone."""

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
    chunk_starts,
)
from tests.conftest import fetches

sizes = st.integers(1, 3000), st.integers(1, 400), st.integers(1, 500)
lengths = st.lists(st.integers(0, 30), min_size=1, max_size=300)


def flat(order: Order) -> np.ndarray:
    return np.concatenate(list(fetches(order)))


@given(*sizes, st.integers(0, 9), st.integers(0, 9))
def test_every_row_once_in_full_fetches(n: int, fetch: int, block: int, seed: int, epoch: int) -> None:
    fetched = list(fetches(BlockShuffled(n, fetch, block, seed, epoch)))
    assert [len(rows) for rows in fetched[:-1]] == [fetch] * (len(fetched) - 1)
    assert np.array_equal(np.sort(np.concatenate(fetched)), np.arange(n))


@given(lengths, st.integers(1, 60), st.integers(1, 40), st.integers(1, 100))
def test_aligned_blocks(nnz: list[int], chunk: int, block: int, fetch: int) -> None:
    """Every row comes once. No block exceeds the requested size. Only a chunk with more rows than that is split."""
    begins = np.cumsum([0, *nnz])[:-1]
    starts = aligned(chunk_starts(begins, chunk), block)
    assert starts[0] == 0
    assert starts[-1] == len(begins)
    assert (np.diff(starts) > 0).all()
    assert np.diff(starts).max() <= block
    rows_of_chunk = np.bincount(begins // chunk)
    for row in starts[1:-1]:
        its_chunk = begins[row] // chunk
        assert begins[row - 1] // chunk != its_chunk or rows_of_chunk[its_chunk] > block
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
    """Except at its two ends, where a block may continue in another fetch, and for the short last block."""
    for rows in fetches(BlockShuffled(n, fetch, block, 0, 0)):
        _, counts = np.unique(rows // block, return_counts=True)
        assert (counts < block).sum() <= 3


def test_blocks_are_drawn_uniformly() -> None:
    """Over many epochs each block comes first equally often: chi-square is below its upper 1e-6 quantile, 45."""
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
def test_a_shuffled_subset_holds_each_of_its_rows_once(n: int, fetch: int, block: int) -> None:
    rows = np.arange(n) * 3 + 1
    assert np.array_equal(np.sort(flat(Subset(BlockShuffled(n, fetch, block, 0, 0), rows))), rows)


def test_rows_are_drawn_in_proportion_to_their_weights() -> None:
    """The counts of half a million draws lie within five standard deviations of their expectations."""
    weights = np.tile([0.0, 1, 2, 3, 0], 20)
    draws = 500_000
    counts = np.bincount(flat(BlockWeighted(weights, 1000, 7, 0, 0, draws)), minlength=len(weights))
    share = weights / weights.sum()
    assert (counts[weights == 0] == 0).all()
    # The rows of a block are drawn together: the variance is up to 7 times that of single rows.
    assert (np.abs(counts - draws * share) < 5 * np.sqrt(7 * draws * share) + 1e-9).all()


def test_classes_are_drawn_equally_often_and_rows_without_a_class_never() -> None:
    codes = np.repeat([0, 1, 2, -1], [10, 100, 890, 50]).astype(np.int32)
    counts = np.bincount(codes[flat(BlockWeighted(balanced(codes), 100, 4, 0, 0, 60_000))] + 1, minlength=4)
    assert counts[0] == 0
    assert (np.abs(counts[1:] - 20_000) < 1500).all()
