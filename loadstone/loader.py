"""Minibatches of cells for training: block sampling with batched fetching."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from loadstone.reading.gathering import Gathering
from loadstone.reading.minibatches import MANY
from loadstone.reading.prefetch import first_batch_alone, read_ahead
from loadstone.reading.validate import count, row_ids
from loadstone.sampling.orders import Order, Subset
from loadstone.sampling.samplers import BlockShuffling, Sampler
from loadstone.sampling.sharding import Share, turn_of

USUAL_FETCH = 256  # minibatches in a fetch, if the size of the rows is not known
FEWEST_FETCHES = 2  # in an epoch, so that one is read while the other is trained on
# In memory, with `buffers.SPARE`: the current fetch and the next, and of few minibatches also one whose last is in use.
FETCHES_HELD, FETCHES_HELD_OF_FEW = 2.25, 3.4


class Source(Protocol):
    """What `BlockLoader` needs of a collection of rows. Implemented by `Matrix` and `Indexed`.

    gather(rows): starts to read the rows with these ids, int64 (n,), as one fetch. batches(fetched, cuts): yields the
    minibatches of a fetch; `fetched` is `Gathering.result()`, and minibatch i has the rows cuts[i] to cuts[i + 1] of
    the fetch. aligned_blocks: see `Matrix.aligned_blocks`. row_bytes: the mean size of a row in a fetch; None: unknown.
    """

    @property
    def row_bytes(self) -> float | None: ...

    def __len__(self) -> int: ...

    def aligned_blocks(self, block_size: int, rows: np.ndarray | None) -> np.ndarray | int: ...

    def gather(self, rows: np.ndarray) -> Gathering: ...

    def batches(self, fetched: Any, cuts: Sequence[int]) -> Iterator[Any]: ...

    def close(self) -> None: ...


class Minibatch(NamedTuple):
    """x: the rows in the form that the source returns, for example CSR, (rows, genes).

    rows: the ids of these rows in the source, int64 (rows,). labels: for each label name, the codes of these rows,
    (rows,).
    """

    x: Any
    rows: np.ndarray
    labels: dict[str, np.ndarray]


class BlockLoader:
    """Shuffled minibatches of rows on disk, by block sampling with batched fetching (method: scDataset paper).

    Iterating over the loader yields the minibatches of one epoch, each a `Minibatch`. The next iteration is the next
    epoch; after an iteration that was stopped early, it is the rest of the same epoch.

        loader = BlockLoader(open_h5ad("atlas.h5ad", output="dense"), batch_size=64)
        for batch in loader:
            batch.x, batch.rows

    A fetch reads `batch_size * fetch_factor` rows, in the order of the sampler, and is divided into minibatches. With
    "auto", it is as large as `memory` allows, in bytes for the buffers of all workers. `sampler.block_size` and
    `fetch_rows` are what was chosen. For given arguments, the order depends only on the seed and the epoch index. The
    minibatches of an epoch are divided among ranks and workers (see `sampling.sharding.Share`). Not thread-safe; only
    one epoch can be iterated at a time.

    source: the result of `open_h5ad`, whose argument `output` selects CSR or dense minibatches, or any other `Source`.
    `BlockLoader.close` closes the source. subset: the ids of the rows to deliver, for example of a training split, in
    any order; None: all rows. labels: for each label name, the codes of all rows of the source, (rows,); a minibatch
    holds the codes of its own rows. drop_last: leave out the rows at the end of an epoch that do not fill a minibatch.
    rank, worker: the index of this rank, 0 to ranks - 1, and of this worker, 0 to workers - 1.

    Raises ValueError for invalid arguments. Weights or codes of a sampler that do not fit the source raise it when an
    epoch begins, before any row is read.
    """

    def __init__(
        self,
        source: Source,
        *,
        sampler: Sampler = BlockShuffling(),  # noqa: B008 - frozen
        batch_size: int = 64,
        fetch_factor: int | Literal["auto"] = "auto",
        memory: int = 1_000_000_000,
        subset: np.ndarray | None = None,
        labels: Mapping[str, np.ndarray] | None = None,
        drop_last: bool = False,
        seed: int = 0,
        rank: int = 0,
        ranks: int = 1,
        worker: int = 0,
        workers: int = 1,
    ) -> None:
        batch_size = count("batch_size", batch_size)
        for name, place, among in (
            ("rank", rank, count("ranks", ranks)),
            ("worker", worker, count("workers", workers)),
        ):
            if not 0 <= place < among:
                raise ValueError(f"{name} {place} is not one of {among}")
        self.source, self.labels = source, dict(labels or {})
        for name, codes in self.labels.items():
            if len(codes) != len(source):
                raise ValueError(f"labels {name!r} has {len(codes):,} codes, but the source has {len(source):,} rows")
        if fetch_factor == "auto":
            fetch_factor = _largest_fetch(source, batch_size, count("memory", memory) / workers)
        self.batch_size, self.fetch_rows, self.seed = batch_size, batch_size * count("fetch_factor", fetch_factor), seed
        self.subset = None if subset is None else _subset(subset, len(source))
        if isinstance(sampler, BlockShuffling):
            n = len(source) if self.subset is None else len(self.subset)
            sampler = sampler.chosen(source, self.subset, n, self.fetch_rows, batch_size, self.labels)
        self.sampler = sampler
        self.rank, self.ranks, self.worker, self.workers, self.drop_last = rank, ranks, worker, workers, drop_last
        self.epoch_index, self.delivered = 0, 0
        self.is_new = True
        self.drawn: tuple[int, list[Share]] | None = None

    def __iter__(self) -> Iterator[Minibatch]:
        """Yields the minibatches of the current epoch that are not yet delivered, then advances to the next epoch.

        The current epoch is epoch 0 at first. `epoch` and `load_state_dict` change it.
        """
        yield from self.epoch(self.epoch_index, self.delivered)
        self.epoch_index, self.delivered = self.epoch_index + 1, 0

    def __len__(self) -> int:
        """The number of minibatches that this worker delivers in a whole epoch."""
        return len(self._shares(self.epoch_index)[self.worker])

    def epoch(self, index: int, delivered: int = 0) -> Iterator[Minibatch]:
        """Yields the minibatches of this worker in epoch `index`, and makes it the current epoch.

        delivered: the number of minibatches that all workers of this rank together have already delivered in this
        epoch. They are skipped.
        """
        self.epoch_index, self.delivered = index, delivered
        shares = self._shares(index)
        given, turn = turn_of([len(share) for share in shares], delivered)
        share = (self.worker + turn) % len(shares)  # worker 0 delivers the next batch
        fetches = shares[share].fetches(given[share])
        is_new, self.is_new = self.is_new, False
        if is_new:  # a program has just started, and its user waits for the first minibatch
            fetches = first_batch_alone(fetches)
        for rows, cuts, fetched in read_ahead(self.source, fetches, first_alone=is_new):
            cuts = cuts.tolist()
            for x, start, stop in zip(self.source.batches(fetched, cuts), cuts, cuts[1:], strict=False):
                ids = rows[start:stop]
                self.delivered += 1
                yield Minibatch(x, ids, {name: codes[ids] for name, codes in self.labels.items()})
            del fetched

    def state_dict(self) -> dict[str, int]:
        """The position, and what decides the order: the seed, and the fetch and the block, which may have been chosen.

        epoch: the epoch index. delivered: the number of minibatches delivered in this epoch. A loader with the same
        arguments resumes there after `load_state_dict`. block_size is 0 if the sampler has no blocks.
        """
        return {**self._decides(), "epoch": self.epoch_index, "delivered": self.delivered}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Makes the next iteration resume at the position in `state`.

        ValueError if `state` has another seed, fetch or block. The last two are missing in states of earlier versions.
        """
        for name, own in self._decides().items():
            if (name == "seed" or name in state) and state[name] != own:
                raise ValueError(f"the state is of {name} {state[name]}, and this loader has {own}")
        self.epoch_index, self.delivered = state["epoch"], state["delivered"]

    def close(self) -> None:
        self.source.close()

    def _decides(self) -> dict[str, int]:
        block_size = getattr(self.sampler, "block_size", 0)
        return {"seed": self.seed, "fetch_rows": self.fetch_rows, "block_size": block_size}

    def order(self, index: int) -> Order:
        """The order of the rows in epoch `index`, for all ranks and workers together."""
        n = len(self.source) if self.subset is None else len(self.subset)
        order = self.sampler.order(self.source, self.subset, n, self.fetch_rows, self.seed, index)
        return order if self.subset is None else Subset(order, self.subset)

    def _shares(self, index: int) -> list[Share]:
        """The shares of all workers of this rank in epoch `index`. The latest result is kept for repeated calls."""
        if self.drawn and self.drawn[0] == index:
            return self.drawn[1]
        self.drawn = None  # one order in memory at a time
        order = self.order(index)
        common = {"rank": self.rank, "ranks": self.ranks, "workers": self.workers}
        shares = [
            Share(order, self.batch_size, drop_last=self.drop_last, worker=worker, **common)
            for worker in range(self.workers)
        ]
        self.drawn = index, shares
        return shares


def _largest_fetch(source: Source, batch_size: int, memory: float) -> int:
    """The most minibatches in a fetch such that all buffers fit into `memory` bytes; at least 1.

    No more than leave an epoch FEWEST_FETCHES fetches, unless these have fewer than USUAL_FETCH minibatches.
    """
    if source.row_bytes is None:
        return USUAL_FETCH
    most = memory / (FETCHES_HELD * source.row_bytes * batch_size)
    if most <= MANY:
        most *= FETCHES_HELD / FETCHES_HELD_OF_FEW
    return max(1, int(min(most, max(USUAL_FETCH, len(source) / (FEWEST_FETCHES * batch_size)))))


def _subset(subset: np.ndarray, n: int) -> np.ndarray:
    """The row ids of a subset, sorted, int64. ValueError if it is empty, or an id repeats or is not 0 to n - 1."""
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
