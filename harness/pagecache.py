"""The page cache: putting files out of it, bringing them in, and seeing what of them is in it."""

import ctypes
import mmap
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

DROP_CACHES = Path("/proc/sys/vm/drop_caches")
WINDOW_BYTES = 1 << 30  # mapped at a time when looking


def evict(paths: Sequence[Path]) -> str | None:
    """Drops the files from the page cache; returns how, or None where this system offers no way.

    Call it before the process that maps the files exists: pages that some process has mapped stay.
    """
    for path in paths:
        with path.open("rb") as file:
            os.fsync(file.fileno())  # dirty pages cannot be dropped
    how = evict_method()
    if how == "drop_caches":
        # Pages alone. With 3, names and inodes of all files go too, of which no loader here has many, and a library
        # of thousands of files takes seconds longer to import.
        DROP_CACHES.write_text("1\n")
    elif how == "fadvise":
        for path in paths:
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return how


def evict_method() -> str | None:
    """How this user can empty the page cache: all of it as root, else file by file; None where neither is had."""
    if os.access(DROP_CACHES, os.W_OK):
        return "drop_caches"
    return "fadvise" if hasattr(os, "posix_fadvise") else None


def warm(paths: Sequence[Path]) -> None:
    """Reads the files once, so that what memory can hold of them is in it."""
    buffer = bytearray(1 << 22)
    for path in paths:
        with path.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass


def resident(paths: Sequence[Path]) -> float | None:
    """The share of the files' bytes that the page cache holds, by mincore; None where the system will not say."""
    if sys.platform != "linux" or not all(_may_ask(path) for path in paths):
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    held = pages = 0
    for path in paths:
        size = path.stat().st_size
        with path.open("rb") as file:
            for offset in range(0, size, WINDOW_BYTES):
                length = min(WINDOW_BYTES, size - offset)
                # Private and writable only so that ctypes can take its address; nothing is written.
                with mmap.mmap(file.fileno(), length, mmap.MAP_PRIVATE, offset=offset) as view:
                    vector = np.zeros(-(-length // mmap.PAGESIZE), np.uint8)
                    anchor = ctypes.c_char.from_buffer(view)
                    failed = libc.mincore(
                        ctypes.c_void_p(ctypes.addressof(anchor)),
                        ctypes.c_size_t(length),
                        ctypes.c_void_p(vector.ctypes.data),
                    )
                    del anchor
                    if failed:
                        raise OSError(ctypes.get_errno(), "mincore", str(path))
                    held += int((vector & 1).sum())
                    pages += len(vector)
    return held / pages if pages else 0.0


def _may_ask(path: Path) -> bool:
    """To others than its owner and writers, Linux says that every page of a file is resident."""
    return os.access(path, os.W_OK) or path.stat().st_uid == os.geteuid()
