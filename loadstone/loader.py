"""Minibatches of cells for training: block sampling with batched fetching."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from loadstone.reading.matrix import Gathering
from loadstone.reading.prefetch import first_batch_alone, read_ahead
from loadstone.reading.validate import count, row_ids
from loadstone.sampling.orders import Subset
from loadstone.sampling.samplers import BlockShuffling, Sampler
from loadstone.sampling.sharding import Share, turn_of


class Source(Protocol):
    """Where rows come from: a `Matrix`, or an `Indexed` collection.

    few_are_quick: whether it takes less time to read fewer rows of a fetch, wherever they lie.
    """

    few_are_quick: bool

    def __len__(self) -> int: ...

    def aligned_blocks(self, block_size: int, rows: np.ndarray | None) -> np.ndarray | int: ...

    def gather(self, rows: np.ndarray) -> Gathering: ...

    def batches(self, fetched: Any, cuts: Sequence[int]) -> Iterator[Any]: ...

    def close(self) -> None: ...


class Minibatch(NamedTuple):
    """x: what the source makes of the rows, (rows, genes). rows: int64 ids, (rows,). labels: codes of each, (rows,)."""

    x: Any
    rows: np.ndarray
    labels: dict[str, np.ndarray]


class BlockLoader:
    """Minibatches from disk in an order that mixes blocks of rows; the method is that of the scDataset paper.

    `batch_size * fetch_factor` rows are read at a time, in the order the sampler draws, and cut into minibatches.
    The order is a function of (seed, epoch) and the same for any number of ranks and workers, which divide it
    (see `Share` for how). Not thread-safe; one epoch runs at a time.

    source: freed by `close`. subset: ids of the rows to deliver, for a split into training and validation; None:
    all. labels: codes by row id, (rows of the source,) each, that come with the batch. drop_last: leaves out the
    cells that do not fill a batch.
    """

    def __init__(
        self,
        source: Source,
        *,
        sampler: Sampler = BlockShuffling(),  # noqa: B008 - frozen
        batch_size: int = 64,
        fetch_factor: int = 256,
        subset: np.ndarray | None = None,
        labels: Mapping[str, np.ndarray] | None = None,
        drop_last: bool = False,
        seed: int = 0,
        rank: int = 0,
        ranks: int = 1,
        worker: int = 0,
        workers: int = 1,
    ) -> None:
        batch_size, fetch_factor = count("batch_size", batch_size), count("fetch_factor", fetch_factor)
        for name, place, among in (
            ("rank", rank, count("ranks", ranks)),
            ("worker", worker, count("workers", workers)),
        ):
            if not 0 <= place < among:
                raise ValueError(f"{name} {place} is not one of {among}")
        self.source, self.sampler, self.labels = source, sampler, dict(labels or {})
        for name, codes in self.labels.items():
            if len(codes) != len(source):
                raise ValueError(f"labels {name!r} has {len(codes):,} codes, but the source has {len(source):,} rows")
        self.batch_size, self.fetch_rows, self.seed = batch_size, batch_size * fetch_factor, seed
        self.subset = None if subset is None else _subset(subset, len(source))
        self.rank, self.ranks, self.worker, self.workers, self.drop_last = rank, ranks, worker, workers, drop_last
        self.epoch_index, self.delivered = 0, 0
        self.begun = False
        self.drawn: tuple[int, list[Share]] | None = None

    def __iter__(self) -> Iterator[Minibatch]:
        """The epoch that is next, or what is left of the one whose state was loaded."""
        yield from self.epoch(self.epoch_index, self.delivered)
        self.epoch_index, self.delivered = self.epoch_index + 1, 0

    def __len__(self) -> int:
        """Minibatches of an epoch."""
        return len(self._shares(self.epoch_index)[self.worker])

    def epoch(self, index: int, delivered: int = 0) -> Iterator[Minibatch]:
        """The minibatches of any epoch; without the first `delivered` of all workers together."""
        self.epoch_index, self.delivered = index, delivered
        shares = self._shares(index)
        given, turn = turn_of([len(share) for share in shares], delivered)
        mine = (self.worker + turn) % len(shares)  # the first of them gives what comes next
        fetches = shares[mine].fetches(given[mine])
        if self.source.few_are_quick and not self.begun:  # whoever starts a program waits for its first minibatch
            fetches = first_batch_alone(fetches)
        self.begun = True
        for rows, cuts, fetched in read_ahead(self.source, fetches):
            cuts = cuts.tolist()
            for x, start, stop in zip(self.source.batches(fetched, cuts), cuts, cuts[1:], strict=False):
                ids = rows[start:stop]
                self.delivered += 1
                yield Minibatch(x, ids, {name: codes[ids] for name, codes in self.labels.items()})
            del fetched

    def state_dict(self) -> dict[str, int]:
        """Where the epoch stands: what `load_state_dict` of an equal loader continues from, at the next batch."""
        return {"seed": self.seed, "epoch": self.epoch_index, "delivered": self.delivered}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        if state["seed"] != self.seed:
            raise ValueError(f"the state is of seed {state['seed']}, and this loader has {self.seed}")
        self.epoch_index, self.delivered = state["epoch"], state["delivered"]

    def close(self) -> None:
        self.source.close()

    def _shares(self, index: int) -> list[Share]:
        """Of all workers, in one epoch; the order is drawn once, however often the length is asked for."""
        if self.drawn and self.drawn[0] == index:
            return self.drawn[1]
        self.drawn = None  # one order in memory at a time
        n = len(self.source) if self.subset is None else len(self.subset)
        order = self.sampler.order(self.source, self.subset, n, self.fetch_rows, self.seed, index)
        order = order if self.subset is None else Subset(order, self.subset)
        common = {"rank": self.rank, "ranks": self.ranks, "workers": self.workers}
        shares = [
            Share(order, self.batch_size, drop_last=self.drop_last, worker=worker, **common)
            for worker in range(self.workers)
        ]
        self.drawn = index, shares
        return shares


def _subset(subset: np.ndarray, n: int) -> np.ndarray:
    """Its ids, ascending; ValueError for none at all, one that comes twice, or what is no row's id."""
    try:
        ids = np.sort(row_ids(subset, n))
    except IndexError as error:
        raise ValueError(f"the subset must hold ids of rows: {error}") from error
    if not len(ids):
        raise ValueError("the subset is empty: it names no row")
    twice = np.flatnonzero(ids[1:] == ids[:-1])
    if len(twice):
        raise ValueError(f"the subset names row {ids[twice[0]]} twice")
    return ids
