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

    The files alone where that is enough, so that the libraries which a worker imports stay in memory, as does
    everybody else's work; all of the cache, as root, where mincore still finds pages of them. Call it before the
    process that maps the files exists: pages that some process has mapped stay.
    """
    for path in paths:
        with path.open("rb") as file:
            os.fsync(file.fileno())  # dirty pages cannot be dropped
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    method = evict_method()
    if method == "drop_caches":
        if hasattr(os, "posix_fadvise") and not resident(paths):
            return "fadvise"
        DROP_CACHES.write_text("1\n")
    return method


def evict_method() -> str | None:
    """The most this user can do: empty all of the page cache, as root, or single files of it; None where neither."""
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
