"""One-dimensional arrays on disk. Only the pieces that the requested rows need are read.

A piece is a range of elements that is read at once, together with the requested rows that overlap this range. In a
chunked array, a piece is a chunk from its start to the last element needed. In an array without chunks, a piece covers
requested rows that lie next to each other or are separated by short gaps.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from loadstone.codecs.compiled import compiled
from loadstone.codecs.registry import DEFLATE, PLAIN, Codec, plain
from loadstone.reading.validate import one_line

# If only the first elements of a chunk are needed, the same fraction of its stored bytes is read, times this factor,
# and this many bytes more.
HEAD_MARGIN, HEAD_MARGIN_BYTES = 1.25, 512
NEAR = 8_192  # elements; a gap between two rows up to this length is read rather than skipped
RUN = 131_072  # most elements of an unchunked array per piece, unless one row has more; fits into a processor's cache
THROUGH_SLICE = 65_536  # elements per read through a library if the array has no chunks


Read = Callable[[int, int, int], bytes]
"""Reads from a file: (descriptor, number of bytes, offset), as `os.pread`."""
Verify = Literal["first", "always", "never"]
"""When the checksum of a chunk is verified if only its first elements are needed: see `Chunked`."""


class Pieces(NamedTuple):
    """The pieces to read from an array. Every field is an int64 array with one entry per piece, (pieces,).

    A piece has the elements `start` to `stop` of its array. The requested rows `first` to `last` overlap it; these are
    indices into the requested rows. `stop` and `last` are exclusive.

    The other fields are for the compiled loop, and are empty if the loop does not read the array. `size` bytes are read
    at offset `place` of the file descriptor `fd`, and decoded. Only the first `wanted` decoded bytes are needed; the
    whole chunk has `whole` decoded bytes. `mark` is the address of a byte that is set to 1 when the checksum of the
    chunk has been verified.
    """

    start: np.ndarray
    stop: np.ndarray
    first: np.ndarray
    last: np.ndarray
    fd: np.ndarray = np.empty(0, np.int64)
    place: np.ndarray = np.empty(0, np.int64)
    size: np.ndarray = np.empty(0, np.int64)
    wanted: np.ndarray = np.empty(0, np.int64)
    whole: np.ndarray = np.empty(0, np.int64)
    mark: np.ndarray = np.empty(0, np.int64)


class Array(Protocol):
    """A one-dimensional array on disk, of which pieces can be read.

    name: the file and the array, for messages. chunk: the number of elements per chunk; None: there are no chunks.
    slow: the reason why the array is read slowly, for a warning; None if it is read at full speed. codec: decodes the
    pieces; None if they are read through h5py or zarr.
    """

    @property
    def name(self) -> str: ...

    @property
    def chunk(self) -> int | None: ...

    @property
    def slow(self) -> str | None: ...

    @property
    def codec(self) -> Codec | None: ...

    def pieces(self, begin: np.ndarray, end: np.ndarray) -> Pieces:
        """The pieces to read for the requested rows. Row i has the elements begin[i] to end[i] (exclusive).

        begin, end: int64 (rows,). The rows must be in ascending order; a row may be requested repeatedly.
        """

    def read(self, start: int, stop: int) -> np.ndarray:
        """The elements from `start` on, at least up to `stop` (exclusive). start, stop: as in a piece from `pieces`.

        Raises OSError, with the name of the array and the chunk or elements, if they cannot be read or decoded.
        """


class Table(NamedTuple):
    """Where the chunks of an array are stored. Chunk i has size[i] bytes at offset place[i] of a file.

    The descriptor of this file is fds[i // per_file]. size[i] is 0 if chunk i was never written. Whoever makes a table
    must have validated that the chunks lie within their files. read(descriptor, bytes, offset): reads a chunk that the
    compiled loop does not.
    """

    fds: np.ndarray
    per_file: int
    place: np.ndarray
    size: np.ndarray
    read: Read = os.pread

    def packed(self, i: int) -> bytes:
        return self.read(int(self.fds[i // self.per_file]), int(self.size[i]), int(self.place[i]))


class Chunked:
    """An array of `length` elements, stored in chunks of `chunk` elements each.

    where: a `Table`, or a function that returns the stored bytes of chunk i.
    verify: how often the checksums of DEFLATE chunks are verified; other codecs are not affected. The checksum covers a
    whole chunk, but often only the first elements of a chunk are needed. "first": a chunk is decoded whole, and
    verified, at its first read; later it is decoded only up to the last element needed. "always": every read decodes
    the whole chunk and verifies it. "never": every read decodes a chunk only up to the last element needed, so a
    checksum is verified only if the last element of the chunk is needed.
    """

    def __init__(
        self,
        name: str,
        length: int,
        chunk: int,
        codec: Codec,
        where: Table | Callable[[int], Any],
        verify: Verify = "first",
    ) -> None:
        self.name, self.length, self.chunk, self.codec, self.verify = name, length, chunk, codec, verify
        self.slow = codec.slow
        self.table = where if isinstance(where, Table) and codec.compiled is not None else None
        self.packed: Callable[[int], Any] = where.packed if isinstance(where, Table) else where
        self.whole = chunk * codec.dtype.itemsize
        self.verified = np.zeros(len(self.table.place) if self.table else 0, np.uint8)

    def pieces(self, begin: np.ndarray, end: np.ndarray) -> Pieces:
        start, stop, first, last = _chunks_of(begin, end, self.chunk)
        if self.table is None:
            return Pieces(start, stop, first, last)
        i, wanted = start // self.chunk, _bytes(self, start, stop)
        size, whole = self.table.size[i], np.full(len(i), self.whole)
        if self.codec.compiled == PLAIN:
            size = wanted
        elif self.codec.compiled == DEFLATE:
            if self.verify == "always":
                wanted = whole
            elif self.verify == "first":
                wanted = np.where(self.verified[i], wanted, whole)
            guessed = (size * (wanted / self.whole * HEAD_MARGIN)).astype(np.int64) + HEAD_MARGIN_BYTES
            size = np.where(wanted == whole, size, np.minimum(size, guessed))
        else:
            wanted = whole
        fd = self.table.fds[i // self.table.per_file]
        mark = self.verified.ctypes.data + i
        return Pieces(start, stop, first, last, fd, self.table.place[i], size, wanted, whole, mark)

    def read(self, start: int, stop: int) -> np.ndarray:
        """All elements of the chunk that begins with element `start`. OSError if it cannot be read or decoded."""
        i = start // self.chunk
        place = f"chunk {i} (elements {start} to {min(start + self.chunk, self.length)})"
        with reading(self.name, place):
            return self.codec.decode(self.packed(i), self.whole)


class Plain:
    """An uncompressed array in a file, in one or several segments. No row extends over two segments.

    edges: the first element of each segment, followed by the length of the array: int64 (segments + 1,). places: the
    offset of each segment in the file in bytes, (segments,). file_bytes: the size of the file. read: see `Table`.
    OSError if a segment does not lie within the file.
    """

    chunk = None

    def __init__(
        self,
        name: str,
        fd: int,
        dtype: np.dtype,
        edges: np.ndarray,
        places: np.ndarray,
        file_bytes: int,
        read: Read = os.pread,
    ) -> None:
        self.name, self.fd, self.codec, self.edges, self.places = name, fd, plain(dtype), edges, places
        self.slow, self.from_file = self.codec.slow, read
        last = int(np.max(places + np.diff(edges) * dtype.itemsize))
        if places.min() < 0 or file_bytes < last:
            raise OSError(f"{name} is cut short: it should reach to byte {last:,}")

    def pieces(self, begin: np.ndarray, end: np.ndarray) -> Pieces:
        start, stop, first, last = _runs_of(begin, end, self.edges, NEAR, RUN)
        if self.codec.compiled is None:
            return Pieces(start, stop, first, last)
        size = _bytes(self, start, stop)
        fd = np.full(len(start), self.fd)
        return Pieces(start, stop, first, last, fd, self._place(start), size, size, size, np.zeros_like(fd))

    def read(self, start: int, stop: int) -> np.ndarray:
        n = (stop - start) * self.codec.dtype.itemsize
        packed = self.from_file(self.fd, n, int(self._place(np.array([start]))[0]))
        if len(packed) < n:
            raise OSError(f"{self.name}, elements {start} to {stop}, cannot be read: the file ends before them")
        return self.codec.decode(packed, n)

    def _place(self, start: np.ndarray) -> np.ndarray:
        segment = np.searchsorted(self.edges, start, "right") - 1
        return self.places[segment] + (start - self.edges[segment]) * self.codec.dtype.itemsize


class Through:
    """An array that only the library of its format can decode. It is read through h5py or zarr.

    array: the h5py dataset or zarr array. why: the reason why only the library can decode it, for the warning. check:
    called after each read with the index of the first element read; raises OSError if the file that holds this element
    has changed since the array was opened.
    """

    codec = None

    def __init__(self, name: str, array: Any, why: str, check: Callable[[int], None] = lambda start: None) -> None:
        self.name, self.array, self.check = name, array, check
        self.chunk = array.chunks[0] if array.chunks else THROUGH_SLICE
        library = type(array).__module__.split(".")[0]
        self.slow = f"is read through {library}, which is slower: {why}"

    def pieces(self, begin: np.ndarray, end: np.ndarray) -> Pieces:
        return Pieces(*_chunks_of(begin, end, self.chunk))

    def read(self, start: int, stop: int) -> np.ndarray:
        with reading(self.name, f"chunk {start // self.chunk} (elements {start} to {stop})"):
            values = self.array[start:stop]
            if len(values) != stop - start:
                raise ValueError(f"{len(values)} elements came")
        self.check(start)
        return values


@contextmanager
def reading(name: str, place: str) -> Iterator[None]:
    """Turns any exception of a codec or a library into an OSError that names the array and the place in it."""
    try:
        yield
    except Exception as error:
        raise OSError(f"{name}, {place}, cannot be read: {one_line(error)}") from error


def read_whole(array: Array, length: int, dtype: np.dtype) -> np.ndarray:
    """All elements of `array`, which has `length` elements, converted to `dtype`: (length,). Errors: `Array.read`."""
    step, values = array.chunk or max(length, 1), np.empty(length, dtype)
    for start in range(0, length, step):
        stop = min(start + step, length)
        values[start:stop] = array.read(start, stop)[: stop - start]
    return values


def _bytes(array: Chunked | Plain, start: np.ndarray, stop: np.ndarray) -> np.ndarray:
    """The decoded size of each piece in bytes."""
    return (stop - start) * array.codec.dtype.itemsize


@compiled
def _chunks_of(begin, end, chunk):
    n, previous = 0, -1
    for i in range(len(begin)):
        if end[i] > begin[i]:
            a, b = begin[i] // chunk, (end[i] - 1) // chunk
            n += b - max(a, previous + 1) + 1
            previous = b
    start, stop, first, last = (
        np.empty(n, np.int64),
        np.empty(n, np.int64),
        np.empty(n, np.int64),
        np.empty(n, np.int64),
    )
    n, previous = 0, -1
    for i in range(len(begin)):
        if end[i] > begin[i]:
            a, b = begin[i] // chunk, (end[i] - 1) // chunk
            for c in range(a, b + 1):
                if c > previous:
                    start[n], first[n] = c * chunk, i
                    n, previous = n + 1, c
                # A row that is requested twice may begin in a chunk before the last one listed.
                place = n - 1 - (previous - c)
                stop[place], last[place] = min(end[i], (c + 1) * chunk), i + 1
    return start, stop, first, last


@compiled
def _runs_of(begin, end, edges, near, longest):
    n_rows = len(begin)
    start, stop, first, last = np.empty((4, n_rows), np.int64)
    n, edge = 0, 0
    for i in range(n_rows):
        if end[i] == begin[i]:
            continue
        if n == 0 or begin[i] >= edge or begin[i] > stop[n - 1] + near or end[i] > start[n - 1] + longest:
            start[n], first[n] = begin[i], i
            edge = edges[np.searchsorted(edges, begin[i], side="right")]
            n += 1
        stop[n - 1], last[n - 1] = end[i], i + 1
    return start[:n], stop[:n], first[:n], last[:n]
