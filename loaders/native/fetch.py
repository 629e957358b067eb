"""The pipeline: the next fetch is read while this one is consumed, the first batch of all before its fetch."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np


def read_ahead(source: Any, fetches: Iterable[tuple[np.ndarray, Any]]) -> Iterator[tuple[np.ndarray, Any, Any]]:
    """(row ids, what came with them, what the source has fetched) of each fetch; the next one is in the making.

    An error is raised where its fetch would have come. Dropped half-way, it leaves no task behind.
    """
    coming = None
    try:
        for rows, told in fetches:
            ready, coming = coming, (rows, told, source.gather(rows))
            if ready:
                yield *ready[:2], ready[2].result()
            del ready  # and with it the buffer, before the next is waited for
        if coming:
            yield *coming[:2], coming[2].result()
    finally:
        if coming:
            coming[2].cancel()


def first_batch_alone(fetches: Iterable[tuple[np.ndarray, np.ndarray]]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The same (row ids, cuts), the first of them in two: its first batch, for which a consumer waits, and the rest.

    Its chunks are decoded once more for the rest: one or two each of its rows and arrays. In return a consumer's first
    step, which takes long, does not wait for thousands of cells.
    """
    fetches = iter(fetches)
    for rows, cuts in fetches:
        yield rows[: cuts[1]], cuts[:2]
        if len(cuts) > 2:
            yield rows[cuts[1] :], cuts[1:] - cuts[1]
        break
    yield from fetches
