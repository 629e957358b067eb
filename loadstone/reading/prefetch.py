"""Prefetch: the next fetch is read while the current one is consumed."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

FEW = 16  # batches; if a fetch has at most this many, its first batch needs most of the chunks of the fetch


def read_ahead(
    source: Any, fetches: Iterable[tuple[np.ndarray, Any]], *, first_alone: bool = False
) -> Iterator[tuple[np.ndarray, Any, Any]]:
    """Yields each fetch as (row ids, extra, the result of `source.gather`) while the next fetch is being read.

    fetches: pairs (row ids, extra); `extra` is passed on unchanged. first_alone: whether the second fetch begins only
    when the first is complete. On a slow disk, reads of the first that were not announced would otherwise wait for
    hundreds of reads of the second. If a fetch fails, its error is raised where the
    fetch would have been yielded. If the iterator is closed early, the fetch in progress is cancelled.
    """
    coming = None
    try:
        for rows, extra in fetches:
            ready, coming = coming, (rows, extra, source.gather(rows))
            if ready:
                yield *ready[:2], ready[2].result()
            elif first_alone:
                coming[2].result()
            del ready  # drops the reference to the buffer before waiting for the next fetch
        if coming:
            yield *coming[:2], coming[2].result()
    finally:
        if coming:
            coming[2].cancel()


def first_batch_alone(fetches: Iterable[tuple[np.ndarray, np.ndarray]]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields the same fetches, but divides the first into two: its first batch, and the rest.

    The first batch is then available sooner. Chunks that it shares with the rest of the fetch are decoded twice. A
    fetch of at most FEW batches is not divided. fetches: pairs (row ids, cuts); batch i has the rows cuts[i] to
    cuts[i + 1] of the fetch.
    """
    for k, (rows, cuts) in enumerate(fetches):
        if k == 0 and len(cuts) - 1 > FEW:
            yield rows[: cuts[1]], cuts[:2]
            yield rows[cuts[1] :], cuts[1:] - cuts[1]
        else:
            yield rows, cuts
