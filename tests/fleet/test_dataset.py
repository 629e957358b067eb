"""A fleet gives the minibatches of the local loader, whoever makes them, and resumes on any number of ranks."""

import pytest
import torch
from torch.utils.data import DataLoader

from loadstone import BlockShuffling, BlockWeightedSampling, Streaming
from loadstone.fleet import cluster
from loadstone.tokens import BinnedTokens, RankTokens, vocabulary
from loadstone.torch import BlockDataset
from tests import tiny
from tests.fleet.conftest import SETTINGS, rows_of
from tests.tiny import N

PLATES = torch.repeat_interleave(torch.arange(4), torch.tensor(tiny.LENGTHS)).numpy()


def same(a: dict, b: dict) -> bool:
    """Whether two minibatches have the same bits."""
    parts = [
        part
        for key in a
        for part in (
            [(getattr(a[key], name)(), getattr(b[key], name)()) for name in ("crow_indices", "col_indices", "values")]
            if a[key].layout == torch.sparse_csr
            else [(a[key], b[key])]
        )
    ]
    return list(a) == list(b) and all(p.dtype == q.dtype and torch.equal(p, q) for p, q in parts)


def test_minibatches_are_those_of_the_local_loader_for_any_number_of_producers(producers, fleet, opened) -> None:
    local = list(BlockDataset(opened, **SETTINGS))
    for more, n in ((1, 1), (1, 2), (2, 4)):
        producers(more)
        assert len(cluster.find()) == n
        dataset = fleet()
        batches = list(DataLoader(dataset, batch_size=None))
        assert len(batches) == len(dataset) == len(local)
        assert all(same(a, b) for a, b in zip(local, batches, strict=True))


def test_every_argument_gives_what_it_gives_locally(producers, fleet, opened) -> None:
    producers(2)
    cases = [
        {"dense": True, "labels": {"plate": PLATES}},
        {"tokens": RankTokens(vocabulary=vocabulary(tiny.GENES), length=9), "labels": {"plate": PLATES}},
        {"tokens": BinnedTokens(vocabulary=vocabulary(tiny.GENES)), "fetch_factor": 9},
        {"subset": range(3, N, 3), "labels": {"plate": PLATES}, "sampler": BlockShuffling()},
        {"sampler": Streaming(shuffle=True), "seed": 3, "drop_last": True, "rank": 1, "ranks": 3},
        {"sampler": BlockWeightedSampling(PLATES + 1, n_drawn=200), "ahead": 5},
        {"fetch_factor": "auto", "memory": 100_000, "batch_size": 7},
    ]
    for case in cases:
        dataset = fleet(**case)
        local = BlockDataset(opened, **(SETTINGS | {k: v for k, v in case.items() if k != "ahead"}))
        for epoch in (0, 1):
            dataset.set_epoch(epoch)
            local.set_epoch(epoch)
            assert len(dataset) == len(local)
            assert all(same(a, b) for a, b in zip(dataset, local, strict=True)), case


def test_epochs_follow_as_the_docstring_says(producers, fleet) -> None:
    producers(1)
    dataset = fleet()
    first = rows_of(dataset)
    assert sorted(first) == list(range(N))
    assert list(dataset) == []
    dataset.set_epoch(1)
    batches = iter(dataset)
    begun = rows_of(next(batches) for _ in range(5))
    del batches
    rest = rows_of(dataset)
    assert sorted(begun + rest) == list(range(N))
    assert begun + rest != first


@pytest.mark.parametrize(("before", "after"), [(1, 1), (1, 2), (2, 1), (2, 3)])
def test_an_epoch_is_resumed_on_any_number_of_ranks(producers, fleet, before: int, after: int) -> None:
    producers(1)
    seen, states = [], []
    for rank in range(before):
        dataset = fleet(rank=rank, ranks=before, seed=5)
        dataset.set_epoch(2)
        batches = iter(DataLoader(dataset, batch_size=None))
        seen += rows_of(next(batches) for _ in range(9))  # in the middle of a fetch
        states.append(dataset.state_dict())
    assert all(state == states[0] for state in states)
    n = 0
    for rank in range(after):
        dataset = fleet(rank=rank, ranks=after, seed=5)
        dataset.load_state_dict(states[0])
        rows = rows_of(dataset)
        n += len(rows)
        seen += rows
    assert len(set(seen)) == len(seen) > N - after, "no cell comes twice, and fewer than ranks are left out"
    if before == after == 1:
        assert sorted(seen) == list(range(N))


def test_a_state_of_another_order_is_refused(producers, fleet) -> None:
    producers(1)
    state = fleet().state_dict()
    with pytest.raises(ValueError, match="the state is of seed 0, and this data set has 1"):
        fleet(seed=1).load_state_dict(state)
    with pytest.raises(ValueError, match="the state is of fetch_rows 32, and this data set has 64"):
        fleet(fetch_factor=4).load_state_dict(state)
