"""The pipeline: the next fetches are read while this one is consumed."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from contextlib import suppress
from typing import Any

import numpy as np

AHEAD_BYTES = 32_000_000  # of fetches in the making beyond the next one
AHEAD_FETCHES = 16


def read_ahead(source: Any, fetches: Iterable[np.ndarray]) -> Iterator[tuple[np.ndarray, Any]]:
    """(row ids, what the source has fetched of them) of each fetch in turn.

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
                    waiting.append((rows, source.gather(rows)))
            if not waiting:
                return
            rows, gathering = waiting.popleft()
            yield rows, gathering.result()
            del gathering  # and with it the buffer, before the next is waited for
    finally:
        for _, gathering in waiting:
            gathering.cancel()


def _within_bounds(waiting: deque) -> bool:
    return len(waiting) < AHEAD_FETCHES and sum(g.fetched.nbytes for _, g in waiting) < AHEAD_BYTES


def made_ahead[T, R](pool: Executor, make: Callable[[T], R], items: Iterable[T], depth: int) -> Iterator[R]:
    """`make` of each item in turn, up to `depth` of them in the making while one is consumed."""
    making: deque = deque()
    try:
        for item in items:
            making.append(pool.submit(make, item))
            if len(making) > depth:
                yield making.popleft().result()
        while making:
            yield making.popleft().result()
    finally:
        for task in making:
            if not task.cancel():
                task.exception()
