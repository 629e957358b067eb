"""The order of the rows in an epoch. It depends only on the arguments, which include the seed and the epoch index.

Any fetch of an epoch can be computed without the fetches before it. The method is from the scDataset paper (D'Ascenzo
and Cultrera di Montesano 2025). Its algorithm 1 draws blocks of consecutive rows without replacement. Its algorithm 2
reads `fetch_rows` rows at a time and shuffles them in memory.

If a subset of the rows is selected, an order yields positions in the subset, and `Subset` maps them to row ids.
Otherwise the positions are the row ids.
"""

from typing import Protocol

import numpy as np

from loadstone.codecs.compiled import compiled


class Order(Protocol):
    """The rows of one epoch, in the order in which they are delivered, divided into fetches.

    n_rows: the number of rows in the epoch. fetch_rows: the number of rows per fetch. fetch(k): the rows of fetch k, in
    delivery order, int64 (fetch_rows,); the last fetch may be shorter.
    """

    @property
    def n_rows(self) -> int: ...

    @property
    def fetch_rows(self) -> int: ...

    def fetch(self, k: int) -> np.ndarray: ...


class Streamed:
    """The rows in file order.

    shuffle_buffer: (seed, epoch), from which the rows within each fetch are shuffled; None: they are not shuffled.
    """

    def __init__(self, n_rows: int, fetch_rows: int, shuffle_buffer: tuple[int, int] | None = None) -> None:
        self.n_rows, self.fetch_rows, self.shuffle_buffer = n_rows, fetch_rows, shuffle_buffer

    def fetch(self, k: int) -> np.ndarray:
        rows = _places(self, k)
        if self.shuffle_buffer is not None:
            np.random.default_rng([*self.shuffle_buffer, k]).shuffle(rows)
        return rows


class BlockShuffled:
    """Every row once. The blocks are shuffled, and then the rows within each fetch.

    blocks: either one number, the block size, where only the last block may be shorter; or the first row of each block
    followed by n_rows, int64 (blocks + 1,). A block that does not fit into the rest of a fetch is continued in the next
    fetch. Memory: 4 bytes per block if `blocks` is one number, otherwise 20 bytes per block.
    """

    def __init__(self, n_rows: int, fetch_rows: int, blocks: int | np.ndarray, seed: int, epoch: int) -> None:
        self.n_rows, self.fetch_rows, self.key = n_rows, fetch_rows, (seed, epoch)
        if not n_rows:
            blocks = np.zeros(1, np.int64)  # there are no blocks
        self.starts = None if isinstance(blocks, int) else blocks
        n_blocks = -(-n_rows // blocks) if isinstance(blocks, int) else len(blocks) - 1
        self.shuffled = np.arange(n_blocks, dtype=np.uint32)
        np.random.default_rng([seed, epoch]).shuffle(self.shuffled)
        if self.starts is None:
            self.size = blocks
            self.short_by = n_blocks * blocks - n_rows
            # The position in the shuffled sequence at which the short last block ends.
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
    """Rows drawn with replacement in proportion to their weights, several from each block so that reads stay local.

    A block is `block_size` consecutive rows. A block is drawn in proportion to the sum of its rows' weights; then
    `block_size` rows are drawn within it, in proportion to their weights. Each draw therefore yields a row with a
    probability equal to its weight divided by the sum of all weights. Fetches are drawn independently of each other.
    Fewer rows are drawn from the last block of a fetch if `block_size` does not divide the number of rows.

    weights: one per selected row, not negative, (rows,). n_rows: the number of rows to draw in the epoch; None:
    len(weights).
    """

    def __init__(
        self, weights: np.ndarray, fetch_rows: int, block_size: int, seed: int, epoch: int, n_rows: int | None = None
    ) -> None:
        self.n_rows, self.fetch_rows, self.key = n_rows or len(weights), fetch_rows, (seed, epoch)
        self.block_size = block_size
        self.cumulative = np.concatenate([[0.0], np.cumsum(weights, dtype=np.float64)])

    def fetch(self, k: int) -> np.ndarray:
        rng = np.random.default_rng([*self.key, k])
        n, size, last = len(_places(self, k)), self.block_size, len(self.cumulative) - 1
        block = self._at(rng.random(-(-n // size)) * self.cumulative[-1]) // size
        low, high = self.cumulative[block * size], self.cumulative[np.minimum((block + 1) * size, last)]
        within = rng.random((len(block), size))
        rows = self._at(low[:, None] + within * (high - low)[:, None]).ravel()[:n]
        rng.shuffle(rows)
        return rows

    def _at(self, weight: np.ndarray) -> np.ndarray:
        """For each number in `weight`, the row whose interval of the cumulative weights contains it, int64.

        weight: numbers from 0 to the sum of all weights. No row of weight 0 is returned.
        """
        below = np.nextafter(self.cumulative[-1], 0)
        return np.searchsorted(self.cumulative, np.minimum(weight, below), side="right") - 1


class Subset:
    """An order of the rows of a subset: the positions that `order` yields are replaced by row ids.

    rows: the row ids of the subset, int64 (rows,), ascending.
    """

    def __init__(self, order: Order, rows: np.ndarray) -> None:
        self.order, self.rows = order, rows
        self.n_rows, self.fetch_rows = order.n_rows, order.fetch_rows

    def fetch(self, k: int) -> np.ndarray:
        return self.rows[self.order.fetch(k)]


def rows_at(order: Order, start: int, stop: int) -> np.ndarray:
    """The rows at the positions `start` to `stop` (exclusive) of the order, int64 (stop - start,)."""
    first, last = start // order.fetch_rows, -(-stop // order.fetch_rows)
    fetches = [order.fetch(k) for k in range(first, last)]
    rows = fetches[0] if len(fetches) == 1 else np.concatenate([np.empty(0, np.int64), *fetches])
    return rows[start - first * order.fetch_rows :][: stop - start]


def balanced(codes: np.ndarray) -> np.ndarray:
    """The weight of each row, such that every class that occurs is equally likely to be drawn: float64 (rows,).

    codes: the class of each row, integers, (rows,). Rows with a code below 0 belong to no class and have weight 0.
    """
    codes = codes.astype(np.int64)  # of unsigned integers there is no -1
    counts = np.bincount(codes[codes >= 0])
    return np.append(1 / np.maximum(counts, 1), 0.0)[np.maximum(codes, -1)]


def chunk_starts(begins: np.ndarray, chunk: int) -> np.ndarray:
    """The first row of each chunk in which a row begins, followed by n: int64 (chunks + 1,).

    begins: the element at which each row begins, ascending, (n,). chunk: the number of elements per chunk.
    """
    starts = np.empty(min(len(begins), int(begins[-1]) // chunk + 1 if len(begins) else 0) + 1, np.int64)
    n = _chunk_starts(begins, chunk, starts)
    starts[n] = len(begins)
    return starts[: n + 1]


@compiled
def _chunk_starts(begins, chunk, starts):
    n, end = 0, np.int64(0)
    for row in range(len(begins)):
        if row == 0 or begins[row] >= end:
            end = (begins[row] // chunk + 1) * chunk
            starts[n] = row
            n += 1
    return n


def aligned(chunks: np.ndarray, block_size: int) -> np.ndarray:
    """Divides rows into blocks of at most `block_size` rows. Only a chunk with more rows than that is split.

    chunks: as `chunk_starts` returns it, of at least one row. Returns the first row of each block, followed by the
    number of rows: int64 (blocks + 1,).

    A row belongs to the chunk in which it begins. A block takes as many whole chunks as fit. A chunk with more than
    `block_size` rows is divided into parts of equal size, up to rounding. Each part is a block; the block of the last
    part also takes the next chunks that fit. Since no block is larger than `block_size`, the rows of a fetch are mixed
    at least as well as with blocks of exactly that size.
    """
    starts = np.empty(_aligned(chunks, block_size, np.empty(0, np.int64)) + 1, np.int64)
    _aligned(chunks, block_size, starts)
    starts[-1] = chunks[-1]
    return starts


@compiled
def _aligned(chunks, block_size, starts):
    """Returns the number of blocks. Writes the first row of each block into `starts` until `starts` is full."""
    blocks, start = 0, np.int64(0)
    for i in range(len(chunks) - 1):
        row, stop = chunks[i], chunks[i + 1]
        if stop - start > block_size:  # this chunk does not fit into the current block
            pieces = -(-(stop - row) // block_size)
            for piece in range(-1 if row > start else 0, pieces - 1):
                if blocks < len(starts):
                    starts[blocks] = start if piece < 0 else row + (stop - row) * piece // pieces
                blocks += 1
            start = row + (stop - row) * (pieces - 1) // pieces
    if blocks < len(starts):
        starts[blocks] = start
    return blocks + 1


def _places(order: Order, k: int) -> np.ndarray:
    return np.arange(k * order.fetch_rows, min((k + 1) * order.fetch_rows, order.n_rows))
