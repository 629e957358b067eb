"""What reads from a disk cost. Measured with a few reads when a source is opened."""

import math
import os
import time
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import NamedTuple

import numpy as np

PAGE = 4_096  # bytes
LARGE = 2**20  # bytes of a long read
SHORT_AT_ONCE, LONG_AT_ONCE = 32, 8  # reads that are in progress at the same time during a trial
TRIAL_S = 0.2  # seconds after which no further reads are started
MOST_SHORT, MOST_LONG = 1_024, 64  # reads per trial
SMALLEST = 64 * LARGE  # bytes; in fewer, long reads at random places would overlap
PROBES = 32  # places at which it is tested whether the files are in the page cache


class Disk(NamedTuple):
    """What reads from a disk cost while several are in progress.

    seconds_a_read: the time per read, however short it is. bytes_a_second: the rate of long reads. connections: to
    object storage, over which both are measured, so that each has a share of the rate; 0: it is a disk.
    """

    seconds_a_read: float
    bytes_a_second: float
    connections: int = 0

    @property
    def bytes_a_read(self) -> float:
        """The number of bytes that take as long as one more read."""
        return self.seconds_a_read * self.bytes_a_second if self.seconds_a_read else 0.0


MEMORY = Disk(0.0, math.inf)
"""The page cache: a read costs nothing."""

_measured: dict[int, Disk] = {}  # by the number of the device


def measured(sizes: Mapping[int, int]) -> Disk:
    """What reads from these files cost. sizes: the size in bytes of each open file, by its descriptor.

    If the files lie on several disks, the disk with the most bytes is measured. A disk is measured once per process, by
    two trials at random places: short reads and long reads, for about TRIAL_S seconds each. Returns MEMORY without a
    trial if most of the bytes are in the page cache, if the files have fewer than SMALLEST bytes in total, or if the
    system has no read hints. OSError if a file cannot be read.
    """
    if not hasattr(os, "RWF_NOWAIT") or not hasattr(os, "posix_fadvise"):
        return MEMORY
    by_device: dict[int, dict[int, int]] = {}
    for fd, size in sizes.items():
        by_device.setdefault(os.fstat(fd).st_dev, {})[fd] = size
    device, files = max(by_device.items(), key=lambda item: sum(item[1].values()), default=(0, {}))
    if sum(files.values()) < SMALLEST:
        return MEMORY
    if device not in _measured:
        places = _random_places(files)
        if sum(_is_cached(fd, place) for fd, place in islice(places, PROBES)) > PROBES / 2:
            return MEMORY
        _measured[device] = Disk(
            seconds_a_read=_seconds_a_read(places, PAGE, SHORT_AT_ONCE, MOST_SHORT),
            bytes_a_second=LARGE / _seconds_a_read(places, LARGE, LONG_AT_ONCE, MOST_LONG),
        )
    return _measured[device]


def _random_places(sizes: Mapping[int, int]) -> Iterator[tuple[int, int]]:
    """Yields (file descriptor, offset) of random whole pages, each page of all files with the same probability."""
    fds, ends = list(sizes), np.cumsum([size // PAGE for size in sizes.values()])
    rng = np.random.default_rng()  # other processes measure other places
    while True:
        page = int(rng.integers(ends[-1]))
        i = int(np.searchsorted(ends, page, side="right"))
        yield fds[i], (page - int(ends[i - 1] if i else 0)) * PAGE


def _is_cached(fd: int, place: int) -> bool:
    try:
        os.preadv(fd, [bytearray(1)], place, os.RWF_NOWAIT)
    except OSError:  # it would have to wait for the disk, or the file system does not tell
        return False
    return True


def _seconds_a_read(places: Iterator[tuple[int, int]], n_bytes: int, at_once: int, most: int) -> float:
    """The time per read of n_bytes each. at_once: the number of reads in progress. most: of reads in total."""
    start = time.perf_counter()
    tried: list[tuple[int, int]] = []
    while len(tried) < most and time.perf_counter() - start < TRIAL_S:
        together = list(islice(places, at_once))
        for fd, place in together:
            os.posix_fadvise(fd, place, n_bytes, os.POSIX_FADV_WILLNEED)
        for fd, place in together:
            os.pread(fd, n_bytes, place)
        tried += together
    seconds = (time.perf_counter() - start) / len(tried)
    for fd, place in tried:  # the page cache is left as it was
        os.posix_fadvise(fd, place, n_bytes, os.POSIX_FADV_DONTNEED)
    return seconds


def are_cached(fd: int, places: np.ndarray) -> bool:
    """Whether the pages at all of a few of these offsets, evenly chosen, are in the page cache. places: int64 (n,)."""
    if not hasattr(os, "RWF_NOWAIT"):
        return False
    return all(_is_cached(fd, place) for place in places[:: -(-len(places) // PROBES)].tolist())
