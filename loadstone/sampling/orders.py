"""Which rows, in what order: functions of (seed, epoch, fetch) alone, so that any fetch can be drawn apart.

The method is that of the scDataset paper (D'Ascenzo and Cultrera di Montesano 2025): its Algorithm 1 draws blocks
of consecutive rows without replacement, its Algorithm 2 gathers `fetch_rows` of them at a time and shuffles them
in memory. An order is over places 0 to n_rows - 1 of the rows chosen: of all of them, or of a subset's.
"""

from typing import Protocol

import numpy as np

from loadstone.codecs.compiled import compiled


class Order(Protocol):
    """One epoch's rows in the sequence of their delivery, cut into fetches.

    n_rows: rows of the epoch. fetch(k): int64 ids of its k-th `fetch_rows` rows, as they are delivered; the last
    fetch may be shorter.
    """

    n_rows: int
    fetch_rows: int

    def fetch(self, k: int) -> np.ndarray: ...


class Streamed:
    """The rows as they lie; with `shuffle_buffer` (seed, epoch) each fetch is shuffled within itself."""

    def __init__(self, n_rows: int, fetch_rows: int, shuffle_buffer: tuple[int, int] | None = None) -> None:
        self.n_rows, self.fetch_rows, self.shuffle_buffer = n_rows, fetch_rows, shuffle_buffer

    def fetch(self, k: int) -> np.ndarray:
        rows = _places(self, k)
        if self.shuffle_buffer is not None:
            np.random.default_rng([*self.shuffle_buffer, k]).shuffle(rows)
        return rows


class BlockShuffled:
    """Every row once, in blocks that are shuffled, and shuffled again within a fetch.

    blocks: the size of all blocks but the last, or int64 (blocks + 1,) the first row of each, ending with n_rows.
    A block that reaches past the end of a fetch is spread over two. Memory: 4 bytes a block of one size, and
    20 bytes a block of many.
    """

    def __init__(self, n_rows: int, fetch_rows: int, blocks: int | np.ndarray, seed: int, epoch: int) -> None:
        self.n_rows, self.fetch_rows, self.key = n_rows, fetch_rows, (seed, epoch)
        if not n_rows:
            blocks = np.zeros(1, np.int64)  # no blocks
        self.starts = None if isinstance(blocks, int) else blocks
        n_blocks = -(-n_rows // blocks) if isinstance(blocks, int) else len(blocks) - 1
        self.shuffled = np.arange(n_blocks, dtype=np.uint32)
        np.random.default_rng([seed, epoch]).shuffle(self.shuffled)
        if self.starts is None:
            self.size = blocks
            self.short_by = n_blocks * blocks - n_rows
            # Where, counted in rows of the shuffled sequence, the short last block ends.
            self.short_end = (int(np.flatnonzero(self.shuffled == n_blocks - 1)[0]) + 1) * blocks - self.short_by
        else:
            self.ends = np.cumsum(np.diff(self.starts)[self.shuffled])

    def fetch(self, k: int) -> np.ndarray:
        place = _places(self, k)
        if self.starts is None:
            place += self.short_by * (place >= self.short_end)
            rows = self.shuffled[place // self.size].astype(np.int64) * self.size + place % self.size
        else:
            block = np.searchsorted(self.ends, place, side="right")
            stop = self.starts[self.shuffled[block].astype(np.int64) + 1]
            rows = stop - self.ends[block] + place
        np.random.default_rng([*self.key, k]).shuffle(rows)
        return rows


class BlockWeighted:
    """Rows drawn with replacement, each as often as its weight says, in blocks that are near each other on disk.

    A block is drawn with the weight of all its rows, then as many rows within it, with theirs: a row's expected
    count is its share of all weights. weights: (n_rows,), not negative. Each fetch is drawn apart; of its last
    block only what still fits.
    """

    def __init__(
        self, weights: np.ndarray, fetch_rows: int, block_size: int, seed: int, epoch: int, n_rows: int | None = None
    ) -> None:
        self.n_rows, self.fetch_rows, self.key = n_rows or len(weights), fetch_rows, (seed, epoch)
        self.block_size = block_size
        self.cumulated = np.concatenate([[0.0], np.cumsum(weights, dtype=np.float64)])

    def fetch(self, k: int) -> np.ndarray:
        rng = np.random.default_rng([*self.key, k])
        n, size, last = len(_places(self, k)), self.block_size, len(self.cumulated) - 1
        block = self._at(rng.random(-(-n // size)) * self.cumulated[-1]) // size
        low, high = self.cumulated[block * size], self.cumulated[np.minimum((block + 1) * size, last)]
        within = rng.random((len(block), size))
        rows = self._at(low[:, None] + within * (high - low)[:, None]).ravel()[:n]
        rng.shuffle(rows)
        return rows

    def _at(self, weight: np.ndarray) -> np.ndarray:
        """The rows in which these points of the cumulated weights lie: never one without weight."""
        below = np.nextafter(self.cumulated[-1], 0)
        return np.searchsorted(self.cumulated, np.minimum(weight, below), side="right") - 1


class Subset:
    """An order over the places of some rows, as an order of those rows. rows: int64 ids, ascending."""

    def __init__(self, order: Order, rows: np.ndarray) -> None:
        self.order, self.rows = order, rows
        self.n_rows, self.fetch_rows = order.n_rows, order.fetch_rows

    def fetch(self, k: int) -> np.ndarray:
        return self.rows[self.order.fetch(k)]


def balanced(codes: np.ndarray) -> np.ndarray:
    """Weights with which every class is drawn as often as any other; codes below 0 are in no class, weight 0."""
    counts = np.bincount(codes[codes >= 0])
    return np.append(1 / np.maximum(counts, 1), 0.0)[np.maximum(codes, -1)]


def aligned(begins: np.ndarray, chunk: int, block_size: int) -> np.ndarray:
    """Blocks of at most `block_size` rows that break a storage chunk only where it holds more rows than that.

    begins: (n,) the element at which each row begins, ascending; chunk: elements of a chunk. Returns int64
    (blocks + 1,): the first row of each block, and n. Rows belong to the chunk in which they begin. As many whole
    chunks as fit make a block; a chunk with more rows makes several of equal size. Blocks no larger than asked
    for mix a buffer no worse than blocks of that size do.
    """
    starts = np.empty(_aligned(begins, chunk, block_size, np.empty(0, np.int64)) + 1, np.int64)
    _aligned(begins, chunk, block_size, starts)
    starts[-1] = len(begins)
    return starts


@compiled
def _aligned(begins, chunk, block_size, starts):
    """The number of blocks; writes as many of their first rows as there is room for."""
    blocks, start, row, n = 0, 0, 0, len(begins)
    while row < n:
        stop = row + 1
        while stop < n and begins[stop] // chunk == begins[row] // chunk:
            stop += 1
        if stop - start > block_size:  # this chunk does not fit beside those gathered so far
            pieces = -(-(stop - row) // block_size)
            for piece in range(-1 if row > start else 0, pieces - 1):
                if blocks < len(starts):
                    starts[blocks] = start if piece < 0 else row + (stop - row) * piece // pieces
                blocks += 1
            start = row + (stop - row) * (pieces - 1) // pieces
        row = stop
    if blocks < len(starts):
        starts[blocks] = start
    return blocks + 1


def _places(order: Order, k: int) -> np.ndarray:
    return np.arange(k * order.fetch_rows, min((k + 1) * order.fetch_rows, order.n_rows))
