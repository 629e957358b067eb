"""Reuse of buffers. Without it, getting new memory pages from the operating system takes as long as filling them."""

import sys

import numpy as np

KEPT = 8  # arrays at most: two (data, indices) for each of the current fetch, the next, and those still in use
SPARE = 1.125  # buffers are larger than requested by this factor, since the next fetch may hold a few more values


class Memory:
    """Allocates arrays, and reuses the memory of an array when no reference to it or to a view of it is left.

    Not thread-safe.
    """

    def __init__(self) -> None:
        self.kept: list[np.ndarray] = []

    def empty(self, n: int, dtype: type) -> np.ndarray:
        """An uninitialized array of this dtype, (n,)."""
        needed = n * np.dtype(dtype).itemsize
        # A numpy view references the array that owns its memory, so the reference count includes views.
        is_free = [count == UNHELD for count in _references(self.kept)]
        for array, free in zip(self.kept, is_free, strict=True):
            if free and array.nbytes >= needed:
                return array[:needed].view(dtype)
        held = [array for array, free in zip(self.kept, is_free, strict=True) if not free]
        fresh = np.empty(int(needed * SPARE), np.uint8)
        self.kept = [*held, fresh][-KEPT:]
        return fresh[:needed].view(dtype)


def _references(arrays: list[np.ndarray]) -> list[int]:
    return [sys.getrefcount(array) for array in arrays]


UNHELD = _references([np.empty(0)])[0]
