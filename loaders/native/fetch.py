"""The pipeline: the next fetch is read while this one is consumed."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np


def read_ahead(source: Any, fetches: Iterable[np.ndarray]) -> Iterator[tuple[np.ndarray, Any]]:
    """(row ids, what the source has fetched of them) of each fetch in turn; the one after it is in the making.

    An error is raised where its fetch would have come. Dropped half-way, it leaves no task behind.
    """
    coming = None
    try:
        for rows in fetches:
            ready, coming = coming, (rows, source.gather(rows))
            if ready:
                yield ready[0], ready[1].result()
            del ready  # and with it the buffer, before the next is waited for
        if coming:
            yield coming[0], coming[1].result()
    finally:
        if coming:
            coming[1].cancel()
