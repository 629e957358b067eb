"""An epoch that is resumed on other numbers of ranks delivers every row once."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadstone.sampling.orders import BlockShuffled, rows_at
from loadstone.sampling.resuming import Left, Length, Part
from loadstone.sampling.sharding import Share

COUNT = st.integers(1, 5)


def delivered(left: Left, rank: int, ranks: int, first: int, last: int | None) -> list[int]:
    """The positions of the minibatches `first` to `last` of a rank."""
    batches = []
    for start, stop, cuts in left.share(rank, ranks).spans():
        places = [place for a, b in left.real(start, stop) for place in range(a, b)]
        batches += [places[a:b] for a, b in pairwise(cuts.tolist())]
    return [place for batch in batches[first:last] for place in batch]


@given(
    st.integers(1, 2_000),
    st.integers(1, 20),
    st.integers(1, 6),
    st.lists(st.tuples(COUNT, st.integers(0, 40)), max_size=4),
)
def test_no_row_is_lost_or_delivered_twice(n: int, batch: int, factor: int, stages: list) -> None:
    length, seen, parts = Length(n, batch * factor), [], []
    for ranks, wanted in stages:
        left = Left(length, batch, parts)
        part = Part(ranks, min(wanted, len(left.share(0, ranks))))
        for rank in range(ranks):
            seen += delivered(left, rank, ranks, 0, part.delivered)
        parts.append(part)
    seen += delivered(Left(length, batch, parts), 0, 1, 0, None)
    assert sorted(seen) == list(range(n))


@given(st.integers(1, 2_000), st.integers(1, 20), st.integers(1, 6), COUNT)
def test_without_a_change_of_ranks_it_is_the_share_of_the_rank(n: int, batch: int, factor: int, ranks: int) -> None:
    order = BlockShuffled(n, batch * factor, 7, 0, 0)
    left = Left(Length(n, batch * factor), batch, [])
    for rank in range(ranks):
        expected = [rows.tolist() for rows, _ in Share(order, batch, rank=rank, ranks=ranks).fetches()]
        spans = [left.real(start, stop) for start, stop, _ in left.share(rank, ranks).spans()]
        assert [
            np.concatenate([rows_at(order, *s) for s in each]).tolist() if each else [] for each in spans
        ] == expected


def test_the_rows_of_an_order_of_which_only_lengths_are_known_cannot_be_asked_for() -> None:
    with pytest.raises(TypeError, match="not known"):
        Length(10, 5).fetch(0)
