"""The pipeline: the next fetch is read while this one is consumed, the first batch of all before its fetch."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

FEW = 16  # batches: where a fetch has no more, its first meets most of its chunks


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
    """The same (row ids, cuts), but the first in two: its first batch, for which the consumer waits, and the rest.

    The chunks of that batch are decoded once more for the rest. A fetch of FEW batches or fewer stays whole.
    """
    for k, (rows, cuts) in enumerate(fetches):
        if k == 0 and len(cuts) - 1 > FEW:
            yield rows[: cuts[1]], cuts[:2]
            yield rows[cuts[1] :], cuts[1:] - cuts[1]
        else:
            yield rows, cuts
