"""Sharding: the minibatches of an epoch divided among ranks and their worker processes."""

from bisect import bisect_right
from collections.abc import Iterator

import numpy as np

from loadstone.sampling.orders import Order, rows_at


class Share:
    """The minibatches that worker `worker` of rank `rank` delivers in an epoch.

    Of R ranks, rank r takes the full fetches r, r + R, and so on, as long as R full fetches are left. The remaining
    rows, fewer than R full fetches, are divided into R parts of equal length, one for each rank, and each part into the
    same number of batches. Every rank therefore has the same number of batches, and no position of the order is
    delivered twice. If the number of remaining rows is not a multiple of R, up to R - 1 rows per epoch are left out.
    With one rank no row is left out, and the last batch may be shorter.

    drop_last: also leaves out the last rows of each of these R parts, so that every batch has `batch_size` rows.

    Of W workers, worker w delivers the fetches w, w + W, and so on, of its rank; the part of the remaining rows counts
    as the last fetch of the rank. The batches hold the same rows for any W. ValueError if `batch_size` does not divide
    the number of rows per fetch.
    """

    def __init__(
        self,
        order: Order,
        batch_size: int,
        *,
        rank: int = 0,
        ranks: int = 1,
        worker: int = 0,
        workers: int = 1,
        drop_last: bool = False,
    ) -> None:
        if order.fetch_rows % batch_size:
            raise ValueError(f"a fetch of {order.fetch_rows} rows is not a multiple of the batch size {batch_size}")
        self.order, self.batch_size = order, batch_size
        self.rank, self.ranks, self.worker, self.workers = rank, ranks, worker, workers
        self.rounds = order.n_rows // (order.fetch_rows * ranks)
        whole = self.rounds * order.fetch_rows * ranks
        rest = (order.n_rows - whole) // ranks
        if drop_last:
            rest -= rest % batch_size
        n = -(-rest // batch_size)
        # With one rank the remaining rows are cut like any fetch; with several, batches differ by at most one row.
        self.rest_cuts = (
            np.minimum(np.arange(n + 1) * batch_size, rest) if ranks == 1 else np.arange(n + 1) * rest // max(n, 1)
        )
        self.rest_start = whole + rank * rest

    def __len__(self) -> int:
        """The number of batches in this share."""
        return sum(self._batches(k) for k in self._mine())

    def fetches(self, skip: int = 0) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yields each fetch as (rows in delivery order, cuts), both int64. Batch i has rows[cuts[i]:cuts[i + 1]].

        skip: the number of batches to leave out at the start, because they were delivered before training resumed.
        """
        for start, stop, cuts in self.spans(skip):
            yield rows_at(self.order, start, stop), cuts

    def spans(self, skip: int = 0) -> Iterator[tuple[int, int, np.ndarray]]:
        """Yields each fetch as (its first position in the order, the position after its last, cuts); see `fetches`."""
        for k in self._mine():
            n = self._batches(k)
            if skip >= n:
                skip -= n
                continue
            start = (k * self.ranks + self.rank) * self.order.fetch_rows if k < self.rounds else self.rest_start
            cuts = np.arange(n + 1) * self.batch_size if k < self.rounds else self.rest_cuts
            yield start + int(cuts[skip]), start + int(cuts[-1]), cuts[skip:] - cuts[skip]
            skip = 0

    def _mine(self) -> range:
        return range(self.worker, self.rounds + 1, self.workers)

    def _batches(self, k: int) -> int:
        return self.order.fetch_rows // self.batch_size if k < self.rounds else len(self.rest_cuts) - 1


def turn_of(batches: list[int], delivered: int) -> tuple[list[int], int]:
    """Returns (the number of batches that each worker has delivered, the index of the worker whose turn is next).

    batches: the number of batches in each worker's share. delivered: the number of batches that all workers together
    have delivered. Workers deliver one batch each in turn, and a worker without batches is skipped; torch's DataLoader
    takes them in this order. The next worker is 0 if all batches are delivered.
    """
    rounds = bisect_right(range(max(batches) + 1), delivered, key=lambda r: sum(min(n, r) for n in batches)) - 1
    given = [min(n, rounds) for n in batches]
    left = delivered - sum(given)
    going = [w for w, n in enumerate(batches) if n > rounds]
    for w in going[:left]:
        given[w] += 1
    return given, going[left] if left < len(going) else 0
