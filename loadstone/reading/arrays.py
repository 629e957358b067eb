"""One-dimensional arrays on disk. Only the pieces that the requested rows need are read.

A piece is a range of elements that is read at once; it records which of the requested rows overlap it. In a compressed
array, a piece is a chunk from its start to the last element needed. In an uncompressed array, it is a run of adjacent
rows.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from loadstone.codecs.compiled import compiled
from loadstone.codecs.registry import DEFLATE, PLAIN, Codec, plain
from loadstone.reading.validate import one_line

# Of a chunk's bytes, the share of the needed elements is read, times this factor, and this many bytes more.
HEAD_MARGIN, HEAD_MARGIN_BYTES = 1.25, 512
NEAR = 8_192  # elements; shorter gaps between rows are read rather than skipped
RUN = 131_072  # elements of an uncompressed array that are read at once, at most; they fit into a processor's cache
THROUGH_SLICE = 65_536  # elements that are read at once through a library if the array has no chunks


Verify = Literal["first", "always", "never"]
"""When the checksum of a chunk is verified if only its head is needed: see `Chunked`."""


class Pieces(NamedTuple):
    """Arrays with one entry per piece.

    A piece has the elements `start` to `stop` of an array, and the requested rows `first` to `last` overlap it; `stop`
    and `last` are exclusive.

    The other fields are for the compiled loop, and are empty if it does not read the array. `size` bytes are read at
    offset `place` of the open file `fd`. The first `wanted` bytes that they decode to are needed; a whole chunk would
    decode to `whole` bytes. `mark` is the address of a byte that is set to 1 when the checksum of the chunk has been
    verified.
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
    """name: the file and the array, for messages. chunk: the number of elements per chunk; None: there are no chunks.
    slow: why the array is read more slowly than possible, and by how much; None if it is not. codec: None if a library
    decodes the array."""

    @property
    def name(self) -> str: ...

    @property
    def chunk(self) -> int | None: ...

    @property
    def slow(self) -> str | None: ...

    @property
    def codec(self) -> Codec | None: ...

    def pieces(self, begin: np.ndarray, end: np.ndarray) -> Pieces:
        """The pieces to read for rows; row i has the elements begin[i] to end[i]. Rows ascend, and may repeat."""

    def read(self, start: int, stop: int) -> np.ndarray:
        """The elements `start` to `stop` of a piece, and maybe some after them. OSError names the array and place."""


class Table(NamedTuple):
    """Chunk i has size[i] bytes at offset place[i] of the file with the descriptor fds[i // per_file].

    Chunks are validated to lie within their files. size[i] is 0 if chunk i was never written.
    """

    fds: np.ndarray
    per_file: int
    place: np.ndarray
    size: np.ndarray

    def packed(self, i: int) -> bytes:
        return os.pread(self.fds[i // self.per_file], self.size[i], self.place[i])


class Chunked:
    """An array in chunks with the same number of elements each, `chunk`.

    where: a table, or a function that returns the stored bytes of chunk i.
    verify: when checksums are verified. The checksum of DEFLATE covers a whole chunk, but often only the first rows of
    a chunk are needed. "first" decodes a chunk whole the first time that any of it is needed, and later only as far as
    needed; "always" decodes it whole every time; "never" decodes it only as far as needed, so that only chunks that are
    needed to their end are verified.
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
        """All elements of the chunk that begins with element `start`."""
        i = start // self.chunk
        place = f"chunk {i} (elements {start} to {min(start + self.chunk, self.length)})"
        with reading(self.name, place):
            return self.codec.decode(self.packed(i), self.whole)


class Plain:
    """An uncompressed array in a file, in one or several segments. No row extends over two segments.

    edges: the first element of each segment, and at the end the length of the array: int64 (segments + 1,). places: the
    offset of each segment in the file, in bytes.
    """

    chunk = None

    def __init__(self, name: str, fd: int, dtype: np.dtype, edges: np.ndarray, places: np.ndarray) -> None:
        self.name, self.fd, self.codec, self.edges, self.places = name, fd, plain(dtype), edges, places
        self.slow = self.codec.slow
        last = int(np.max(places + np.diff(edges) * dtype.itemsize))
        if places.min() < 0 or os.fstat(fd).st_size < last:
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
        packed = os.pread(self.fd, n, int(self._place(np.array([start]))[0]))
        if len(packed) < n:
            raise OSError(f"{self.name}, elements {start} to {stop}, cannot be read: the file ends before them")
        return self.codec.decode(packed, n)

    def _place(self, start: np.ndarray) -> np.ndarray:
        segment = np.searchsorted(self.edges, start, "right") - 1
        return self.places[segment] + (start - self.edges[segment]) * self.codec.dtype.itemsize


class Through:
    """Any other array, read through the library of its format, such as h5py. check: is called after each read with the
    index of the first element read; raises if its chunk has changed since the array was opened."""

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
    """All elements of an array of this length, as `dtype`, (length,)."""
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
