"""A source of rows from any collection that can be indexed with an array. Its hooks are from the scDataset paper."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np

from loadstone.reading.gathering import Gathering
from loadstone.reading.validate import row_ids


class Fetched:
    """A fetch of an `Indexed`.

    data: what `fetch_transform` returned. places: for each row in delivery order, its position in data, int64 (rows,).
    """

    def __init__(self) -> None:
        self.data: Any = None
        self.places: Any = None


class Indexed:
    """A source that reads the rows of `collection`, one fetch at a time, in one background thread.

    collection: needs a length. If it has methods `check()` and `close()`, `check` is called after each fetch, and
    `Indexed.close` calls `close`. Four hooks, in the order of their calls, read and transform the rows:

    fetch_callback(collection, rows): reads the rows of a fetch; rows: ascending ids, int64, none repeated. Default:
    collection[rows].
    fetch_transform(data): transforms the result of fetch_callback. Default: data, unchanged.
    batch_callback(data, places): selects the rows of a minibatch by their positions in data, int64. Default:
    data[places].
    batch_transform(batch): transforms the result of batch_callback into `Minibatch.x`. Default: batch, unchanged.
    """

    row_bytes = None  # the collection may hold anything

    def __init__(
        self,
        collection: Any,
        *,
        fetch_callback: Callable[[Any, np.ndarray], Any] | None = None,
        fetch_transform: Callable[[Any], Any] | None = None,
        batch_callback: Callable[[Any, np.ndarray], Any] | None = None,
        batch_transform: Callable[[Any], Any] | None = None,
    ) -> None:
        self.collection = collection
        self.fetch_callback = fetch_callback or (lambda collection, rows: collection[rows])
        self.fetch_transform = fetch_transform or (lambda data: data)
        self.batch_callback = batch_callback or (lambda data, places: data[places])
        self.batch_transform = batch_transform or (lambda batch: batch)
        self.pool = ThreadPoolExecutor(1, thread_name_prefix="fetch")

    def __len__(self) -> int:
        return len(self.collection)

    def __getitem__(self, rows: np.ndarray) -> Any:
        """The rows with these ids, in this order, after all four hooks.

        IndexError for an id that is not a whole number from 0 to len - 1.
        """
        rows = row_ids(rows, len(self))
        return next(self.batches(self.gather(rows).result(), [0, len(rows)]))

    def aligned_blocks(self, block_size: int, rows: np.ndarray | None = None) -> int:
        """Returns `block_size` itself, because the storage chunks of the collection are not known."""
        return block_size

    def gather(self, rows: np.ndarray) -> Gathering:
        fetched = Fetched()

        def read() -> None:
            ordered, fetched.places = np.unique(rows, return_inverse=True)
            fetched.data = self.fetch_transform(self.fetch_callback(self.collection, ordered))

        check = getattr(self.collection, "check", lambda: None)
        return Gathering(fetched, [self.pool.submit(read)], check)

    def batches(self, fetched: Fetched, cuts: Sequence[int]) -> Iterator[Any]:
        for start, stop in pairwise(cuts):
            yield self.batch_transform(self.batch_callback(fetched.data, fetched.places[start:stop]))

    def close(self) -> None:
        self.pool.shutdown(cancel_futures=True)
        if hasattr(self.collection, "close"):
            self.collection.close()
