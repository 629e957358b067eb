"""Compares ways to bring the parts of files that fetches need into memory, on the disks of the benchmark.

    python -m harness.experiments.reading tahoe-mini

The reads are those that our loader plans for each disk. Every way runs in a fresh process with an empty page cache.
io_uring is measured if the package `liburing` 2024.5.3 is installed. Its later wheels end with an illegal instruction
on the processors that this was tried on.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from unittest.mock import patch

import numpy as np

from harness.condition import Condition
from harness.data.catalogue import load
from harness.data.dataset import Dataset
from harness.machine import pagecache
from harness.run.limits import DISKS, limits
from loadstone import BlockShuffling, open_h5ad
from loadstone.codecs.kernel import advise
from loadstone.reading import ahead
from loadstone.reading.disk import Disk

BLOCK_SIZE, FETCH_ROWS = 64, 4_096
FETCHES = {"hdd": 4, "gp3": 40, "nvme": 40}
PLANNED_FOR = {  # about what our loader measures there
    "hdd": Disk(seconds_a_read=1 / 100, bytes_a_second=150e6),
    "gp3": Disk(seconds_a_read=1 / 3_000, bytes_a_second=125e6),
    "nvme": Disk(seconds_a_read=1 / 50_000, bytes_a_second=1e9),
}
AT_ONCE = 32  # reads in progress
PAGE = 4_096  # bytes, the length of a buffer of preadv
REPEATS = 3

Reads = Sequence[tuple[int, int, int]]
"""The file descriptor, the offset and the bytes of each read."""


def planned(dataset: Dataset, disk: str) -> list[tuple[int, int, int]]:
    """The reads of the first fetches of an epoch: the number of the file, the offset and the bytes of each."""
    reads: list[tuple[int, int, int]] = []
    source = open_h5ad(dataset.paths, disk=PLANNED_FOR[disk])
    number = {fd: i for i, fd in enumerate(source.files.sizes())}

    def note(fds: np.ndarray, places: np.ndarray, sizes: np.ndarray) -> None:
        files = [number[fd] for fd in fds.tolist()]
        reads.extend(zip(files, places.tolist(), sizes.tolist(), strict=True))

    order = BlockShuffling(BLOCK_SIZE).order(source, None, len(source), FETCH_ROWS, 0, 0)
    with patch.object(ahead, "advise", note):
        for k in range(FETCHES[disk]):
            source.gather(order.fetch(k)).result()
    source.close()
    return reads


def hints_ahead(reads: Reads) -> int:
    """As our loader: each read is announced to Linux while AT_ONCE others are before it, then made in one thread."""
    fds, places, sizes = (np.array(field) for field in zip(*reads, strict=True))
    advise(fds[:AT_ONCE], places[:AT_ONCE], sizes[:AT_ONCE])
    total = 0
    for i, (fd, place, size) in enumerate(reads):
        ahead = slice(i + AT_ONCE, i + AT_ONCE + 1)
        advise(fds[ahead], places[ahead], sizes[ahead])
        total += len(os.pread(fd, size, place))
    return total


def pread(threads: int) -> Callable[[Reads], int]:
    def read(reads: Reads) -> int:
        with ThreadPoolExecutor(threads) as pool:
            return sum(pool.map(lambda read: len(os.pread(read[0], read[2], read[1])), reads))

    return read


def preadv(reads: Reads) -> int:
    """Every read into a buffer for each of its pages, so that what is not needed could go elsewhere."""

    def read(each: tuple[int, int, int]) -> int:
        fd, place, size = each
        return os.preadv(fd, [bytearray(min(PAGE, size - start)) for start in range(0, size, PAGE)], place)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return sum(pool.map(read, reads))


def io_uring(reads: Reads) -> int:
    import liburing

    ring, completed, total = liburing.io_uring(), liburing.io_uring_cqe(), 0
    liburing.io_uring_queue_init(AT_ONCE, ring)
    buffers = {}
    try:
        for i, (fd, place, size) in enumerate(reads, start=1):  # the binding takes no 0
            buffers[i] = bytearray(size)
            entry = liburing.io_uring_get_sqe(ring)
            liburing.io_uring_prep_read(entry, fd, buffers[i], size, place)
            entry.user_data = i
            liburing.io_uring_submit(ring)
            while len(buffers) == AT_ONCE or (i == len(reads) and buffers):
                liburing.io_uring_wait_cqe(ring, completed)
                total += completed.res
                del buffers[completed.user_data]
                liburing.io_uring_cqe_seen(ring, completed)
    finally:
        liburing.io_uring_queue_exit(ring)
    return total


WAYS: dict[str, Callable[[Reads], int]] = {
    "hints ahead, pread in one thread (ours)": hints_ahead,
    "pread in 2 threads": pread(2),
    f"pread in {AT_ONCE} threads": pread(AT_ONCE),
    f"preadv in {AT_ONCE} threads": preadv,
    f"io_uring, {AT_ONCE} in progress": io_uring,
}


def bytes_per_s(dataset: Dataset, disk: str, way: str, reads: Reads) -> float:
    pagecache.drop(dataset.paths)
    with limits(Condition(dataset="", loader="", disk=disk), dataset.paths) as limited:
        command = [sys.executable, "-m", "harness.experiments.reading", "--way", way]
        limited.limit_disk()
        about = json.dumps([[str(path) for path in dataset.paths], reads])
        command = limited.group.wrap(command) if limited.group else command
        return float(subprocess.run(command, input=about, stdout=subprocess.PIPE, text=True, check=True).stdout)


def of_way(way: str) -> None:
    """The process that reads: prints bytes/s. Its standard input has the paths and the reads, as JSON."""
    paths, reads = json.load(sys.stdin)
    fds = [os.open(path, os.O_RDONLY) for path in paths]
    for fd in fds:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    start = time.perf_counter()
    total = WAYS[way]([(fds[file], place, size) for file, place, size in reads])
    seconds = time.perf_counter() - start
    if total != sum(size for _, _, size in reads):
        raise OSError("some reads were short")
    print(total / seconds)


def main() -> None:
    match sys.argv[1:]:
        case ["--way", way]:
            return of_way(way)
        case [spec]:
            dataset = load(spec)
        case _:
            sys.exit(__doc__)
    ways = [way for way in WAYS if "io_uring" not in way or find_spec("liburing")]
    print("| disk | reads | kB a read |", " | ".join(f"{way}, MB/s" for way in ways), "|")
    print("|---|---|---|" + "---|" * len(ways))
    for disk in DISKS:
        reads = planned(dataset, disk)
        rates = {way: [] for way in ways}
        for _ in range(REPEATS):
            for way in ways:
                rates[way].append(bytes_per_s(dataset, disk, way, reads) / 1e6)
        size = np.mean([size for _, _, size in reads]) / 1e3
        cells = (f"{np.median(of):,.1f} ({min(of):,.1f} to {max(of):,.1f})" for of in rates.values())
        print(f"| {disk} | {len(reads):,} | {size:,.0f} |", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    main()
