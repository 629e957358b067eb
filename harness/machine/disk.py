"""How fast files come off their disk, with nothing done to what is read.

Several threads each read a stretch of the files in pieces, in order or in random order, through the page cache or past
it (O_DIRECT). `own` is this module's reader; `fio` asks the well-known tool to do the same, where it is installed.
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
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numba
import numpy as np

THREADS = 16  # reads under way at once
MOST_BYTES = 1 << 30  # of the files, read in one pass
MOST_S = 10.0  # a pass takes
SEQUENTIAL_BYTES = 1 << 20  # a piece, where pieces are read in order
PAGE = 4096  # O_DIRECT reads whole ones
HUGE_PAGE = 1 << 21
LOOK = 32  # pieces between two looks at the clock


class Mode(NamedTuple):
    """order: "sequential" or "random"; direct: past the page cache."""

    order: str
    direct: bool

    def __str__(self) -> str:
        return f"{self.order}, {'O_DIRECT' if self.direct else 'buffered'}"


MODES = tuple(Mode(order, direct) for order in ("sequential", "random") for direct in (False, True))


class Stretch(NamedTuple):
    """Bytes start to stop of a file, a whole number of pieces."""

    path: Path
    start: int
    stop: int


def stretches(paths: Sequence[Path], piece: int) -> list[Stretch]:
    """At least THREADS parts of the largest files, of about the same length each; [] for files below a piece."""
    sizes = {path: path.stat().st_size // piece * piece for path in paths}
    largest = sorted(sizes, key=sizes.get, reverse=True)[: 4 * THREADS]
    share = max(piece, min(sum(sizes[path] for path in largest), MOST_BYTES) // THREADS)
    found, room = [], MOST_BYTES
    for path in largest:
        size = min(sizes[path], room)
        room -= size
        cuts = np.linspace(0, size // piece, max(1, round(size / share)) + 1).astype(int) * piece
        found += [Stretch(path, int(a), int(b)) for a, b in pairwise(cuts) if a < b]
    return found


def own(parts: Sequence[Stretch], piece: int, mode: Mode, huge_pages: bool = False) -> float | None:
    """Bytes/s of one pass over the stretches; None where the file system has no O_DIRECT. The caller evicts first.

    huge_pages: to read into, which doubles what O_DIRECT brings; fio as it is packaged has none to offer.
    """
    if mode.direct and not hasattr(os, "O_DIRECT"):
        return None
    try:
        fds = [os.open(part.path, os.O_RDONLY | (os.O_DIRECT if mode.direct else 0)) for part in parts]
    except OSError as error:
        if mode.direct and error.errno == errno.EINVAL:  # not on this file system
            return None
        raise
    stop = time.perf_counter() + MOST_S
    rng = np.random.default_rng(0)

    def read(fd: int, part: Stretch, to: int) -> int:
        places = np.arange(part.start, part.stop, piece)
        if mode.order == "random":
            places = rng.permutation(places)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM if mode.order == "random" else os.POSIX_FADV_SEQUENTIAL)
        done = 0
        for first in range(0, len(places), LOOK):
            got = _read(fd, to, places[first : first + LOOK], piece)
            if got < 0:
                raise OSError(f"{part.path} cannot be read at some byte from {places[first]} on")
            done += got
            if time.perf_counter() > stop:
                break
        return done

    # O_DIRECT wants memory that begins with a page.
    memory = mmap.mmap(-1, piece * len(parts) + HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if huge_pages:
        memory.madvise(mmap.MADV_HUGEPAGE)
    anchor = ctypes.c_char.from_buffer(memory)
    begin = -(-ctypes.addressof(anchor) // HUGE_PAGE) * HUGE_PAGE
    # By one thread, as fio does: pages that several ask for at once lie scattered, and take the disk more requests.
    ctypes.memset(begin, 1, piece * len(parts))
    try:
        _read(fds[0], 0, np.empty(0, np.int64), piece)  # compiles
        with ThreadPoolExecutor(len(parts)) as pool:
            start = time.perf_counter()
            done = sum(pool.map(read, fds, parts, range(begin, begin + piece * len(parts), piece)))
            return done / (time.perf_counter() - start)
    finally:
        del anchor
        memory.close()
        for fd in fds:
            os.close(fd)


_pread = ctypes.CDLL(None).pread
_pread.argtypes = [ctypes.c_int, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_ssize_t]
_pread.restype = ctypes.c_ssize_t


@numba.njit(nogil=True)
def _read(fd, to, places, piece):
    done = 0
    for i in range(len(places)):
        got = _pread(fd, to, piece, places[i])
        if got < 0:
            return got
        done += got
    return done


def fio_version() -> str | None:
    """What an installed fio calls itself; None where there is none."""
    if not shutil.which("fio"):
        return None
    return subprocess.run(["fio", "--version"], capture_output=True, text=True, check=True).stdout.strip()


def fio(parts: Sequence[Stretch], piece: int, mode: Mode) -> float | None:
    """The same pass by fio; None where it cannot be made, as `own`."""
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
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        if mode.direct:
            return None
        raise OSError(f"fio cannot read {parts[0].path}: {done.stderr.strip().splitlines()[-1]}")
    return float(json.loads(done.stdout)["jobs"][0]["read"]["bw_bytes"])


def readers() -> dict[str, Callable[[Sequence[Stretch], int, Mode], float | None]]:
    """By name, those that can be had here."""
    found = {"own": own, "own, huge pages": partial(own, huge_pages=True)}
    return found | ({"fio": fio} if fio_version() else {})
