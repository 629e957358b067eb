"""Prefetch: the next fetch is read while the current one is consumed."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

FEW = 16  # batches; in a fetch with no more than these, the first batch needs most of the chunks anyway


def read_ahead(source: Any, fetches: Iterable[tuple[np.ndarray, Any]]) -> Iterator[tuple[np.ndarray, Any, Any]]:
    """Yields each fetch as (row ids, extra, the result of `source.gather`) while the next fetch is being read.

    fetches: pairs (row ids, extra); `extra` is passed on unchanged. The error of a fetch is raised when its turn comes.
    If the iterator is dropped, no task is left running.
    """
    coming = None
    try:
        for rows, extra in fetches:
            ready, coming = coming, (rows, extra, source.gather(rows))
            if ready:
                yield *ready[:2], ready[2].result()
            del ready  # releases the buffer before waiting for the next fetch
        if coming:
            yield *coming[:2], coming[2].result()
    finally:
        if coming:
            coming[2].cancel()


def first_batch_alone(fetches: Iterable[tuple[np.ndarray, np.ndarray]]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The same fetches, but the first is divided: its first batch comes as a fetch of its own, so that it comes sooner.

    fetches: pairs (row ids, positions of the cuts between batches). Chunks that the first batch shares with the others
    of its fetch are decoded twice. A fetch of at most FEW batches is not divided.
    """
    for k, (rows, cuts) in enumerate(fetches):
        if k == 0 and len(cuts) - 1 > FEW:
            yield rows[: cuts[1]], cuts[:2]
            yield rows[cuts[1] :], cuts[1:] - cuts[1]
        else:
            yield rows, cuts
