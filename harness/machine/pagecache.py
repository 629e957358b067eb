"""Evicts files from the page cache, reads files into it, and measures which part of the files it holds."""

import ctypes
import mmap
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

DROP_CACHES = Path("/proc/sys/vm/drop_caches")
READINGS = 3
WHOLE = 0.999  # of a file's pages: all but those that a busy machine drops at any time
WINDOW_BYTES = 1 << 30  # the bytes of a file that `resident` maps at a time


def evict(paths: Sequence[Path]) -> str | None:
    """Drops the files from the page cache. Returns the method used, or None if this system offers none.

    "fadvise" is tried first. It drops only these files, so that the libraries that a worker imports and the data of
    other processes stay in memory. If mincore still finds pages of the files and this user is root, "drop_caches"
    empties the whole page cache. Not all pages may be gone afterwards, see `resident`: neither method drops pages that
    a process has mapped. So call this before the process that maps the files starts.
    """
    drop(paths)
    method = evict_method()
    if method == "drop_caches":
        if hasattr(os, "posix_fadvise") and not resident(paths):
            return "fadvise"
        DROP_CACHES.write_text("1\n")
    return method


def drop(paths: Sequence[Path]) -> None:
    """Drops the pages of the files that no process has mapped, where the system offers it."""
    for path in paths:
        with path.open("rb") as file:
            os.fsync(file.fileno())  # dirty pages cannot be dropped
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def evict_method() -> str | None:
    """The strongest method that is available to this user; None if there is none.

    "drop_caches" empties the whole page cache (only for root); "fadvise" drops single files.
    """
    if os.access(DROP_CACHES, os.W_OK):
        return "drop_caches"
    return "fadvise" if hasattr(os, "posix_fadvise") else None


def warm(paths: Sequence[Path]) -> float | None:
    """Reads the files into the page cache. Returns `resident`.

    While Linux makes room, it may drop pages that were read just before. The files are therefore read again, at most
    READINGS times, until WHOLE of their pages are there.
    """
    buffer = bytearray(1 << 22)
    share = None
    for _ in range(READINGS):
        for path in paths:
            with path.open("rb", buffering=0) as file:
                while file.readinto(buffer):
                    pass
        share = resident(paths)
        if share is None or share >= WHOLE:
            break
    return share


def resident(paths: Sequence[Path]) -> float | None:
    """The fraction, 0 to 1, of the files' pages that are in the page cache, as mincore reports it.

    None if the system is not Linux, or does not answer truthfully to this user. Raises OSError if mincore fails.
    """
    if sys.platform != "linux" or not all(_may_query(path) for path in paths):
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    cached = pages = 0
    for path in paths:
        size = path.stat().st_size
        with path.open("rb") as file:
            for offset in range(0, size, WINDOW_BYTES):
                length = min(WINDOW_BYTES, size - offset)
                # ctypes needs a writable mapping to take its address. It is private, and nothing is written.
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
                    cached += int((vector & 1).sum())
                    pages += len(vector)
    return cached / pages if pages else 0.0


def _may_query(path: Path) -> bool:
    """Whether mincore answers truthfully to this user.

    To users who neither own a file nor may write to it, Linux reports all of its pages as resident.
    """
    return os.access(path, os.W_OK) or path.stat().st_uid == os.geteuid()
