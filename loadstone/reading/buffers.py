"""Reuse of buffers: getting new pages from the operating system costs as much as filling them."""

import sys

import numpy as np

KEPT = 8  # arrays at most: two (data, indices) for each of the current fetch, the next, and those still in use
SPARE = 1.125  # buffers are larger than requested by this factor, since the next fetch may hold a few more values


class Memory:
    """Makes arrays, and reuses the memory of one when neither it nor a view of it is referenced. Not thread-safe."""

    def __init__(self) -> None:
        self.kept: list[np.ndarray] = []

    def empty(self, n: int, dtype: type) -> np.ndarray:
        """An array of this dtype, (n,), with arbitrary content."""
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
