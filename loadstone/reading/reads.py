"""The plan of reads: which parts of the files are read at once, to bring the pieces that a fetch needs.

The plan knows no file descriptors, only numbers of files, so that it also serves files that are not on a disk.
"""

from typing import NamedTuple

import numpy as np

from loadstone.codecs.compiled import compiled
from loadstone.reading.disk import PAGE, Disk

LONG = 2**20  # bytes of the longest read; Linux divides longer ones
SHORTEST = 2**16  # bytes to which reads over connections may grow in any case
ROUNDS = 2  # reads of a fetch over each connection, so that all connections are in use until the last read has come
STARTS = 4  # times as long as a read takes to start, its bytes may take: more connections would gain little


class Reads(NamedTuple):
    """Parts of files, each to be read at once. Every field is an int64 array with one entry per read, (reads,).

    A read has `size` bytes at offset `place` of the file with the number `file`. Of the pieces that it brings, `piece`
    is the first.
    """

    file: np.ndarray
    place: np.ndarray
    size: np.ndarray
    piece: np.ndarray


def join(file: np.ndarray, place: np.ndarray, size: np.ndarray, disk: Disk) -> Reads:
    """Joins pieces to reads, in the order of the pieces. Each piece lies within one read.

    Piece i has size[i] bytes at offset place[i] of the file with the number file[i]; all are int64 (pieces,). A piece
    is joined to the piece before it if it follows in the same file after a gap that is cheaper to read than to skip,
    unless the read would become too long.
    """
    if not len(file):
        return Reads(*np.empty((4, 0), np.int64))
    reads = np.empty((4, len(file)), np.int64)
    n = _join(file, place, size, _longest_gap(file, place, size, disk), _longest(size, disk), reads)
    return Reads(*reads[:, :n])


def _longest(size: np.ndarray, disk: Disk) -> int:
    """The most bytes of a read to which pieces are joined.

    A fetch from object storage is complete when its longest read is. Where a connection is slow, reads are therefore
    only so long that all connections have some, but long enough that the time to start them is a small part.
    """
    if not disk.connections:
        return LONG
    even = size.sum() / (ROUNDS * disk.connections)
    return int(min(LONG, max(SHORTEST, even, STARTS * disk.bytes_a_read)))


def _longest_gap(file: np.ndarray, place: np.ndarray, size: np.ndarray, disk: Disk) -> int:
    """The longest gap in bytes between two pieces that is read rather than skipped.

    A gap that costs no more than one more read is worth reading. But a disk that does both at the same time, such as
    cloud storage with a limit for each, gains only while it has to wait for the number of reads and not for the bytes.
    Gaps are read from the shortest on, until the bytes take as long as the reads.
    """
    if not disk.bytes_a_read > PAGE:
        return PAGE
    gaps = np.diff(place) - size[:-1]
    near = (np.diff(file) == 0) & (gaps >= -size[:-1]) & (gaps <= disk.bytes_a_read)
    gaps = np.sort(np.maximum(gaps[near], 0))
    reads_s = (len(file) - np.arange(len(gaps))) * disk.seconds_a_read
    bytes_s = (size.sum() + np.cumsum(gaps)) / disk.bytes_a_second
    worthwhile = reads_s > bytes_s
    if not worthwhile.all():
        gaps = gaps[gaps < gaps[np.argmin(worthwhile)]]
    return max(PAGE, int(gaps[-1])) if len(gaps) else PAGE


@compiled
def _join(file, place, size, longest_gap, longest, reads):
    """Writes the reads to `reads`, int64 (4, pieces). Returns their number."""
    n = 0
    start = stop = np.int64(0)
    for i in range(len(file)):
        end = place[i] + size[i]
        joins = (
            n > 0
            and file[i] == file[i - 1]
            and start <= place[i] <= stop + longest_gap
            and max(end, stop) - start <= longest
        )
        if not joins:
            start, stop = place[i], end
            reads[0, n], reads[1, n], reads[3, n] = file[i], start, i
            n += 1
        stop = max(stop, end)
        reads[2, n - 1] = stop - start
    return n
