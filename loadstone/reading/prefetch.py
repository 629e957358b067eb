"""Prefetch: the next fetch is read while the current one is consumed."""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from loadstone.reading.gathering import Gathering

FEW = 16  # batches; if a fetch has at most this many, its first batch needs most of the chunks of the fetch


def read_ahead(
    source: Any, fetches: Iterator[tuple[np.ndarray, Any]], *, first_alone: bool = False
) -> Iterator[tuple[np.ndarray, Any, Any]]:
    """Yields each fetch as (row ids, extra, the result of `source.gather`) while the next fetch is being read.

    A thread draws the rows of a fetch and calls `source.gather`, which plans its reads. Both take milliseconds, and
    tens of them where caches are cold because the consumer was waiting for an accelerator. In the consumer's thread
    they would delay a minibatch.

    fetches: pairs (row ids, extra); `extra` is passed on unchanged. first_alone: whether the second fetch begins only
    when the first is complete. On a slow disk, reads of the first that were not announced would otherwise wait for
    hundreds of reads of the second. If a fetch fails, its error is raised where the fetch would have been yielded. If
    the iterator is closed early, the fetch in progress is cancelled.
    """

    def begin() -> tuple[np.ndarray, Any, Gathering] | None:
        fetch = next(fetches, None)
        return fetch and (*fetch, source.gather(fetch[0]))

    with ThreadPoolExecutor(1, thread_name_prefix="plan") as planner:
        coming = planner.submit(begin)
        try:
            while ready := coming.result():
                if first_alone:
                    ready[2].result()
                    first_alone = False
                coming = planner.submit(begin)
                yield *ready[:2], ready[2].result()
                del ready  # drops the reference to the buffer before another fetch begins
        finally:
            if not coming.exception() and (ready := coming.result()):
                ready[2].cancel()


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
