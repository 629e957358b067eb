"""Who delivers what: one epoch's order divided among ranks and their worker processes, batch by batch."""

from bisect import bisect_right
from collections.abc import Iterator

import numpy as np

from loadstone.sampling.orders import Order


class Share:
    """One rank's batches of an epoch, or one worker's of them.

    Ranks take whole fetches in turn: rank r of R the fetches r, r + R, ... while R full ones are left. What then is
    left, fewer than R fetches, is cut into R runs of equal length in the order of delivery, and each run into
    equally many batches, so that every rank has the same number of batches and no cell comes twice. The cells that
    do not divide by R, at most R - 1 an epoch, are left out. With one rank all of it comes, and the last batch may
    be shorter.

    drop_last leaves out, instead, what does not fill a batch.

    A worker w of W delivers its rank's fetches w, w + W, ...: batches hold the same cells for any W.
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
        # Alone, a rank's rest is cut as any fetch is. Among several its batches differ in length by a row at most.
        self.rest_cuts = (
            np.minimum(np.arange(n + 1) * batch_size, rest) if ranks == 1 else np.arange(n + 1) * rest // max(n, 1)
        )
        self.rest_start = whole + rank * rest

    def __len__(self) -> int:
        """Batches of this share."""
        return sum(self._batches(k) for k in self._mine())

    def fetches(self, skip: int = 0) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """(row ids in the order of delivery, int64; where the batches are cut) of each fetch.

        skip: batches of this share that were delivered before; of a fetch that had begun only the rest comes.
        """
        for k in self._mine():
            n = self._batches(k)
            if skip >= n:
                skip -= n
                continue
            rows = self.order.fetch(k * self.ranks + self.rank) if k < self.rounds else self._rest()
            cuts = np.arange(n + 1) * self.batch_size if k < self.rounds else self.rest_cuts
            yield rows[cuts[skip] :], cuts[skip:] - cuts[skip]
            skip = 0

    def _mine(self) -> range:
        return range(self.worker, self.rounds + 1, self.workers)

    def _batches(self, k: int) -> int:
        return self.order.fetch_rows // self.batch_size if k < self.rounds else len(self.rest_cuts) - 1

    def _rest(self) -> np.ndarray:
        start, stop = self.rest_start, self.rest_start + int(self.rest_cuts[-1])
        first, last = start // self.order.fetch_rows, -(-stop // self.order.fetch_rows)
        rows = np.concatenate([self.order.fetch(k) for k in range(first, last)])
        return rows[start - first * self.order.fetch_rows :][: stop - start]


def turn_of(batches: list[int], delivered: int) -> tuple[list[int], int]:
    """(batches each worker has given, whose turn it is) once `delivered` have been taken from each worker in turn.

    batches: how many each worker has in all. This is the order in which torch's DataLoader takes them.
    """
    rounds = bisect_right(range(max(batches) + 1), delivered, key=lambda r: sum(min(n, r) for n in batches)) - 1
    given = [min(n, rounds) for n in batches]
    left = delivered - sum(given)
    going = [w for w, n in enumerate(batches) if n > rounds]
    for w in going[:left]:
        given[w] += 1
    return given, going[left] if left < len(going) else 0
