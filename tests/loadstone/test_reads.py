"""Pieces are joined to reads that bring all of them, and the cost of a disk is measured as it is."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.machine import blockdevice, cgroup, pagecache
from loadstone.reading import disk as disks
from loadstone.reading.disk import MEMORY, PAGE, Disk
from loadstone.reading.reads import LONG, SHORTEST, Reads, join

pieces = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 10**7), st.integers(1, 10**5)), max_size=60)
costs = st.builds(Disk, st.floats(0, 0.1), st.floats(1e6, 1e10), st.sampled_from([0, 64]))
HDD = Disk(0.01, 150e6)


def joined(pieces: list[tuple[int, int, int]], disk: Disk) -> Reads:
    return join(*np.array(pieces, np.int64).reshape(-1, 3).T.copy(), disk)


@given(pieces, costs, st.booleans())
def test_every_piece_lies_in_one_read(pieces: list[tuple[int, int, int]], disk: Disk, ascending: bool) -> None:
    if ascending:
        pieces.sort()
    reads = joined(pieces, disk)
    assert (np.diff(reads.piece) > 0).all()
    owners = np.searchsorted(reads.piece, np.arange(len(pieces)), side="right") - 1
    for (file, place, size), i in zip(pieces, owners, strict=True):
        assert file == reads.file[i]
        assert reads.place[i] <= place
        assert place + size <= reads.place[i] + reads.size[i]


@given(pieces, costs)
def test_joining_is_never_dearer_than_reading_each_piece(pieces: list[tuple[int, int, int]], disk: Disk) -> None:
    """By the cost that is minimised: the reads and the bytes proceed at the same time. A page more costs nothing."""
    reads = joined(sorted(pieces), disk)
    n_bytes = sum(size for _, _, size in pieces)

    def seconds(n_reads: int, n_bytes: float) -> float:
        return max(n_reads * disk.seconds_a_read, n_bytes / disk.bytes_a_second)

    free = PAGE * len(pieces)
    assert seconds(len(reads.file), reads.size.sum() - free) <= seconds(len(pieces), n_bytes) * (1 + 1e-9)


def test_chunks_side_by_side_are_one_read() -> None:
    reads = joined([(0, 1_000 + 20_000 * i, 20_000) for i in range(10)], MEMORY)
    assert [field.tolist() for field in reads] == [[0], [1_000], [200_000], [0]]


def test_a_gap_is_read_on_a_disk_that_is_slow_to_start_a_read_and_skipped_on_one_that_is_not() -> None:
    apart = [(0, 100_000 * i, 20_000) for i in range(10)]
    assert len(joined(apart, HDD).file) == 1
    assert len(joined(apart, Disk(1 / 3_000, 125e6)).file) == 10
    assert len(joined(apart, MEMORY).file) == 10


def test_gaps_are_read_only_while_the_number_of_reads_is_what_the_disk_waits_for() -> None:
    """Three gaps, of which each is worth a read; after the first two, the bytes take longer than the reads left."""
    disk = Disk(0.01, 1e6)
    apart = [(0, place, 1_000) for place in (0, 10_000, 19_500, 28_600)]
    assert len(joined(apart, disk).file) == 2


def test_long_runs_are_split_so_that_several_reads_are_in_progress() -> None:
    together = [(0, 100_000 * i, 100_000) for i in range(400)]
    for disk in (MEMORY, HDD):
        sizes = joined(together, disk).size
        assert sizes.sum() == 40_000_000
        assert sizes.max() <= LONG
        assert sizes[:-1].min() > LONG - 100_000


@pytest.mark.parametrize(
    ("connection_mbps", "fetch", "longest"),
    [
        (1, 8_000_000, SHORTEST),  # 8 s for a megabyte over such a connection, and half a second for this
        (1, 64_000_000, 500_000),  # each connection has two reads, whatever their length
        (10, 8_000_000, 150_000),  # four times the bytes that come in the 30 ms in which a read starts
        (1_000, 8_000_000, LONG),  # the same would be more than the longest read of a disk
    ],
)
def test_reads_over_slow_connections_are_shorter(connection_mbps: int, fetch: int, longest: int) -> None:
    link = Disk(0.03 / 64, 64 * connection_mbps * 1e6 / 8, 64)
    piece = 10_000
    sizes = joined([(0, piece * i, piece) for i in range(fetch // piece)], link).size
    assert sizes.sum() == fetch
    assert longest - piece < sizes[:-1].min() <= sizes.max() <= longest


def measured(path: Path) -> Disk:
    fd = os.open(path, os.O_RDONLY)
    try:
        return disks.measured({fd: path.stat().st_size})
    finally:
        os.close(fd)


@pytest.fixture
def large(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(128 << 20))
    return path


def test_files_in_the_page_cache_and_short_files_are_not_measured(large: Path, tmp_path: Path) -> None:
    pagecache.warm([large])
    assert measured(large) == MEMORY
    short = tmp_path / "short"
    short.write_bytes(bytes(1 << 20))
    pagecache.drop([short])
    assert measured(short) == disks.measured({}) == MEMORY


@pytest.mark.parametrize(("reads_per_s", "bytes_per_s"), [(200, 10**9), (10**6, 50_000_000)], ids=["reads", "bytes"])
def test_the_limits_of_a_disk_are_found(large: Path, reads_per_s: int, bytes_per_s: int) -> None:
    """Within a factor of 2.5: a control group lets bursts through, and a read of a megabyte may be divided."""
    pagecache.drop([large])
    code = (
        "import sys; from loadstone.reading.disk import measured; from loadstone.reading.files import Files;"
        "files = Files(); files.open(sys.argv[1]); print(*measured(files.sizes())[:2])"
    )
    with cgroup.group("io") as group:
        if group is None:
            pytest.skip("this user cannot create a control group")
        try:
            group.limit_reads(blockdevice.of(large), reads_per_s, bytes_per_s)
        except OSError as error:
            pytest.skip(f"the disk cannot be limited: {error}")
        command = group.wrap([sys.executable, "-c", code, str(large)])
        output = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    seconds_a_read, bytes_a_second = map(float, output.split())
    if reads_per_s == 200:
        assert 1 / 500 < seconds_a_read < 1 / 80
    else:
        assert 20e6 < bytes_a_second < 125e6
