"""Buffers that are used again: to get pages fresh from the system costs as much as to fill them."""

import sys

import numpy as np

KEPT = 8  # arrays at most: two each for the fetch that is consumed, the next, and the minibatches still held
SPARE = 1.125  # times what was asked for, since the next fetch will hold some values more


class Memory:
    """Arrays whose memory comes back once nobody holds them, nor a view of them. Not thread-safe."""

    def __init__(self) -> None:
        self.kept: list[np.ndarray] = []

    def empty(self, n: int, dtype: type) -> np.ndarray:
        """(n,) of any content."""
        needed = n * np.dtype(dtype).itemsize
        # A view of numpy's refers to the array that owns the memory, so that the count tells of views too.
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
