"""Reuse of buffers. Without it, getting new memory pages from the operating system takes as long as filling them."""

import sys
import threading

import numpy as np
import numpy.typing as npt

KEPT = 8  # arrays at most: two (data, indices) for each of the current fetch, the next, and those still in use
SPARE = 1.125  # buffers are larger than requested by this factor, since the next fetch may hold a few more values
HUGE_PAGE = 2 << 20  # bytes
ASKED = 4 << 20  # bytes of an array for which NumPy asks for huge pages, at least


class Memory:
    """Allocates arrays, and reuses the memory of an array when no reference to it or to a view of it is left."""

    def __init__(self) -> None:
        self.kept: list[tuple[np.ndarray, int]] = []  # bytes, and the first that may begin a huge page
        self.lock = threading.Lock()

    def empty(self, n: int, dtype: npt.DTypeLike) -> np.ndarray:
        """An uninitialized array of this dtype, (n,)."""
        needed = n * np.dtype(dtype).itemsize
        with self.lock:  # of two threads, the second sees the reference that the first has got
            # A numpy view references the array that owns its memory, so the reference count includes views.
            is_free = [count == UNHELD for count in _references(self.kept)]
            for (array, start), free in zip(self.kept, is_free, strict=True):
                if free and array.nbytes >= start + needed:
                    return array[start : start + needed].view(dtype)
            held = [kept for kept, free in zip(self.kept, is_free, strict=True) if not free]
            array, start = _allocated(int(needed * SPARE))
            self.kept = [*held, (array, start)][-KEPT:]
            return array[start : start + needed].view(dtype)


def _allocated(size: int) -> tuple[np.ndarray, int]:
    """(an array of at least this many bytes, uint8, the first byte to use).

    Half a huge page or more begins where one may. On small pages, which a processor with cold caches takes long to
    find, the copy of a minibatch takes milliseconds.
    """
    if size < HUGE_PAGE // 2:
        return np.empty(size, np.uint8), 0
    array = np.empty(max(ASKED, size + HUGE_PAGE), np.uint8)
    return array, -array.ctypes.data % HUGE_PAGE


def _references(kept: list[tuple[np.ndarray, int]]) -> list[int]:
    return [sys.getrefcount(array) for array, _ in kept]


UNHELD = _references([(np.empty(0), 0)])[0]
