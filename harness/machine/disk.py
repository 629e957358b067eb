"""Measures how fast files can be read from their disk, without any processing.

Each of several threads reads one section of the files in pieces, in sequential or random order, through the page cache
or past it (O_DIRECT). `own` is the reader of this module. `fio` runs the tool of that name, if it is installed.
"""

import ctypes
import errno
import json
import mmap
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numba
import numpy as np

THREADS = 16  # concurrent reads
MOST_BYTES = 1 << 30  # the most bytes that one pass reads
MOST_S = 10.0  # the longest duration of a pass
SEQUENTIAL_BYTES = 1 << 20  # size of a piece in sequential order
PAGE = 4096  # O_DIRECT reads whole pages
HUGE_PAGE = 1 << 21
PIECES_PER_CLOCK_CHECK = 32


class Mode(NamedTuple):
    """order: "sequential" or "random". direct: bypasses the page cache."""

    order: str
    direct: bool

    def __str__(self) -> str:
        return f"{self.order}, {'O_DIRECT' if self.direct else 'buffered'}"


MODES = tuple(Mode(order, direct) for order in ("sequential", "random") for direct in (False, True))


class Stretch(NamedTuple):
    """The bytes from `start` to `stop` of a file, a whole number of pieces."""

    path: Path
    start: int
    stop: int


def stretches(paths: Sequence[Path], piece: int) -> list[Stretch]:
    """Divides the largest files into sections of similar length: about THREADS, or more if there are more files.

    At most 4 * THREADS files and MOST_BYTES are used. [] if no file is as long as a piece. piece: bytes of one read.
    """
    sizes = {path: path.stat().st_size // piece * piece for path in paths}
    largest = sorted(sizes, key=sizes.get, reverse=True)[: 4 * THREADS]
    share = max(piece, min(sum(sizes[path] for path in largest), MOST_BYTES) // THREADS)
    parts, room = [], MOST_BYTES
    for path in largest:
        size = min(sizes[path], room)
        room -= size
        cuts = np.linspace(0, size // piece, max(1, round(size / share)) + 1).astype(int) * piece
        parts += [Stretch(path, int(a), int(b)) for a, b in pairwise(cuts) if a < b]
    return parts


def own(parts: Sequence[Stretch], piece: int, mode: Mode, huge_pages: bool = False) -> float | None:
    """Bytes/s of one pass over the parts by this module's reader; None if `mode` needs O_DIRECT and there is none.

    Each part has its own thread. piece: the bytes of one read. The caller must evict the files first. huge_pages: put
    the buffers into huge pages, which doubles the rate of O_DIRECT. Raises OSError if a file cannot be read.
    """
    if mode.direct and not hasattr(os, "O_DIRECT"):
        return None
    with ExitStack() as opened:
        fds = []
        for part in parts:
            try:
                fds.append(os.open(part.path, os.O_RDONLY | (os.O_DIRECT if mode.direct else 0)))
            except OSError as error:
                if mode.direct and error.errno == errno.EINVAL:  # the file system has no O_DIRECT
                    return None
                raise
            opened.callback(os.close, fds[-1])
        return _pass(parts, fds, piece, mode, huge_pages)


def _pass(parts: Sequence[Stretch], fds: Sequence[int], piece: int, mode: Mode, huge_pages: bool) -> float:
    deadline = time.perf_counter() + MOST_S

    def read(fd: int, part: Stretch, buffer: int) -> int:
        offsets = np.arange(part.start, part.stop, piece)
        if mode.order == "random":
            offsets = np.random.default_rng(part.start).permutation(offsets)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM if mode.order == "random" else os.POSIX_FADV_SEQUENTIAL)
        total = 0
        for first in range(0, len(offsets), PIECES_PER_CLOCK_CHECK):
            n_bytes = _read(fd, buffer, offsets[first : first + PIECES_PER_CLOCK_CHECK], piece)
            if n_bytes < 0:
                raise OSError(f"{part.path} cannot be read, in the pieces from byte {offsets[first]} on")
            total += n_bytes
            if time.perf_counter() > deadline:
                break
        return total

    # O_DIRECT needs buffers that are aligned to pages.
    memory = mmap.mmap(-1, piece * len(parts) + HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if huge_pages:
        memory.madvise(mmap.MADV_HUGEPAGE)
    anchor = ctypes.c_char.from_buffer(memory)
    begin = -(-ctypes.addressof(anchor) // HUGE_PAGE) * HUGE_PAGE
    # One thread touches all pages, as fio does. Pages that several threads touch at once are scattered in memory, and
    # need more disk requests.
    ctypes.memset(begin, 1, piece * len(parts))
    try:
        _read(fds[0], 0, np.empty(0, np.int64), piece)  # compiles
        with ThreadPoolExecutor(len(parts)) as pool:
            start = time.perf_counter()
            total = sum(pool.map(read, fds, parts, range(begin, begin + piece * len(parts), piece)))
            return total / (time.perf_counter() - start)
    finally:
        del anchor
        memory.close()


_pread = ctypes.CDLL(None).pread
_pread.argtypes = [ctypes.c_int, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_ssize_t]
_pread.restype = ctypes.c_ssize_t


@numba.njit(nogil=True)
def _read(fd, buffer, offsets, piece):
    total = 0
    for i in range(len(offsets)):
        n_bytes = _pread(fd, buffer, piece, offsets[i])
        if n_bytes < 0:
            return n_bytes
        total += n_bytes
    return total


def fio_version() -> str | None:
    """The version that fio reports; None if it is not installed."""
    if not shutil.which("fio"):
        return None
    return subprocess.run(["fio", "--version"], capture_output=True, text=True, check=True).stdout.strip()


def fio(parts: Sequence[Stretch], piece: int, mode: Mode) -> float | None:
    """Bytes/s of the same pass as `own`, by fio; None if direct reads fail. Raises OSError if buffered reads fail."""
    command = [
        "fio", "--output-format=json", "--readonly", "--thread", "--group_reporting", "--ioengine=psync",
        f"--rw={'randread' if mode.order == 'random' else 'read'}", f"--bs={piece}", f"--direct={int(mode.direct)}",
        f"--runtime={MOST_S:.0f}",
    ]  # fmt: skip
    for i, part in enumerate(parts):
        name = str(part.path.resolve()).replace(":", r"\:")
        command += [
            f"--name=part{i}",
            f"--filename={name}",
            f"--offset={part.start}",
            f"--size={part.stop - part.start}",
        ]
    completed = subprocess.run(command, capture_output=True, text=True)
    if completed.returncode:
        if mode.direct:
            return None
        raise OSError(f"fio cannot read {parts[0].path}: {completed.stderr.strip().splitlines()[-1]}")
    return float(json.loads(completed.stdout)["jobs"][0]["read"]["bw_bytes"])


def readers() -> dict[str, Callable[[Sequence[Stretch], int, Mode], float | None]]:
    """The readers that are available on this machine, by name."""
    builtin = {"own": own, "own, huge pages": partial(own, huge_pages=True)}
    return builtin | ({"fio": fio} if fio_version() else {})
