"""The pipeline: the next buffer is read while this one is consumed."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor


def one_ahead[T](items: Iterator[T]) -> Iterator[T]:
    """The same items, each made in a thread while the consumer holds the one before it.

    An exception in making an item is raised where that item would have come. Dropped half-way, it waits for the
    item in the making and leaves no thread behind.
    """
    end = object()
    with ThreadPoolExecutor(1, thread_name_prefix="fetch") as thread:
        coming = thread.submit(next, items, end)
        while (item := coming.result()) is not end:
            coming = thread.submit(next, items, end)
            yield item
