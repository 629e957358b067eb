"""One epoch divided among ranks and workers: no row twice, no row lost but by the documented rule, and resumption."""

from itertools import pairwise, zip_longest

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadstone.sampling.orders import BlockShuffled
from loadstone.sampling.sharding import Share, turn_of
from tests.conftest import fetches

N, BATCH, FETCH_FACTOR, COUNT = st.integers(1, 2000), st.integers(1, 40), st.integers(1, 6), st.integers(1, 5)


def order(n: int, batch: int, factor: int) -> BlockShuffled:
    return BlockShuffled(n, batch * factor, 7, 0, 0)


def batches(share: Share, skip: int = 0) -> list[list[int]]:
    return [rows[a:b].tolist() for rows, cuts in share.fetches(skip) for a, b in pairwise(cuts)]


@given(N, BATCH, FETCH_FACTOR, st.booleans())
def test_a_single_share_is_the_order_cut_into_batches(n: int, batch: int, factor: int, drop_last: bool) -> None:
    rows = np.concatenate(list(fetches(order(n, batch, factor)))).tolist()
    expected = [rows[i : i + batch] for i in range(0, n, batch)]
    actual = batches(Share(order(n, batch, factor), batch, drop_last=drop_last))
    assert actual == [each for each in expected if len(each) == batch or not drop_last]


@given(N, BATCH, FETCH_FACTOR, COUNT, st.booleans())
def test_ranks_get_equal_numbers_of_batches_and_no_row_twice(
    n: int, batch: int, factor: int, ranks: int, drop_last: bool
) -> None:
    shares = [Share(order(n, batch, factor), batch, rank=r, ranks=ranks, drop_last=drop_last) for r in range(ranks)]
    by_rank = [batches(share) for share in shares]
    assert len({len(of_rank) for of_rank in by_rank}) == 1
    assert [len(share) for share in shares] == [len(of_rank) for of_rank in by_rank]
    sizes = {len(each) for of_rank in by_rank for each in of_rank}
    assert max(sizes, default=batch) <= batch
    assert sizes <= {batch} or not drop_last
    rows = [row for of_rank in by_rank for each in of_rank for row in each]
    assert len(set(rows)) == len(rows)
    lost = n - len(rows)
    assert lost <= ((batch * ranks - 1) if drop_last else ranks - 1)


@given(N, BATCH, FETCH_FACTOR, COUNT, COUNT)
def test_workers_divide_the_batches_of_a_rank(n: int, batch: int, factor: int, ranks: int, workers: int) -> None:
    whole = batches(Share(order(n, batch, factor), batch, ranks=ranks))
    parts = [
        batches(Share(order(n, batch, factor), batch, ranks=ranks, worker=w, workers=workers)) for w in range(workers)
    ]
    assert sorted(whole) == sorted(each for part in parts for each in part)


@given(N, BATCH, FETCH_FACTOR, COUNT, st.data())
def test_resuming_delivers_the_other_batches(n: int, batch: int, factor: int, ranks: int, data: st.DataObject) -> None:
    share = Share(order(n, batch, factor), batch, ranks=ranks)
    whole = batches(share)
    skip = data.draw(st.integers(0, len(whole)))
    assert batches(share, skip) == whole[skip:]


@given(st.lists(st.integers(0, 9), min_size=1, max_size=5), st.data())
def test_turn_of_counts_the_batches_delivered_by_each_worker(counts: list[int], data: st.DataObject) -> None:
    queues = [[w] * count for w, count in enumerate(counts)]
    taken = [w for turn in zip_longest(*queues) for w in turn if w is not None]
    delivered = data.draw(st.integers(0, len(taken)))
    by_worker, turn = turn_of(counts, delivered)
    assert by_worker == [taken[:delivered].count(w) for w in range(len(counts))]
    assert turn == (taken[delivered] if delivered < len(taken) else 0)


def test_a_fetch_that_is_not_a_multiple_of_the_batch_is_rejected() -> None:
    with pytest.raises(ValueError, match="not a multiple"):
        Share(order(100, 10, 1), 3)
