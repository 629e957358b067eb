"""The pipeline: the next buffers are read while this one is consumed."""

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress

import numpy as np

from loaders.native.matrix import Matrix, Rows

AHEAD_BYTES = 64_000_000  # of buffers in the making beyond the next one
AHEAD_FETCHES = 16


def read_ahead(matrix: Matrix, fetches: Iterable[np.ndarray]) -> Iterator[tuple[np.ndarray, Rows]]:
    """(row ids, their rows) of each fetch in turn.

    While one is consumed the next is in the making, and as many after it as hold no more than AHEAD_BYTES with it.
    An error is raised where its fetch would have come. Dropped half-way, it leaves no task behind.
    """
    waiting: deque = deque()
    fetches = iter(fetches)
    try:
        while True:
            with suppress(StopIteration):
                while len(waiting) < 2 or _within_bounds(waiting):
                    rows = next(fetches)
                    waiting.append((rows, matrix.gather(rows)))
            if not waiting:
                return
            rows, gathering = waiting.popleft()
            yield rows, gathering.result()
    finally:
        for _, gathering in waiting:
            gathering.cancel()


def _within_bounds(waiting: deque) -> bool:
    return len(waiting) < AHEAD_FETCHES and sum(g.rows.nbytes for _, g in waiting) < AHEAD_BYTES
