"""One-dimensional arrays on disk, read in the pieces that some rows touch.

A piece is a range of elements that is read at once, with the rows that take part in it. Compressed arrays are read
by chunks, from each chunk's start to the last element wanted of it; plain ones by runs of rows that lie together.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from loadstone.codecs.compiled import compiled
from loadstone.codecs.registry import DEFLATE, PLAIN, Codec, plain
from loadstone.reading.validate import one_line

HEAD_MARGIN, HEAD_MARGIN_BYTES = 1.25, 512  # of a chunk's bytes, beyond the share of its elements that is wanted
NEAR = 8_192  # elements that are cheaper to read over than to skip
RUN = 131_072  # elements of a plain array read at a time: they fit a processor's cache
THROUGH_SLICE = 65_536  # elements read at a time through a library from an array without chunks
THROUGH_SLOWER = "about 5 times slower"  # docs/native.md, "What is slower"


Verify = Literal["first", "always", "never"]
"""When the checksum of a chunk is looked at, where only its head is wanted: see `Chunked`."""


class Pieces(NamedTuple):
    """Arrays with one entry a piece: its elements start..stop, and the rows first..last that touch it.

    Where kernel.py reads them: `size` bytes at `place` of the open file `fd`, and of the `whole` bytes to which they
    decode the first `wanted`; `mark` is the address of a byte that becomes 1 once a whole chunk's checksum was right.
    Elsewhere these are empty.
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
    """name: says the file and the array. chunk: elements of a compressed chunk; None where any range costs what it
    holds. slow: why it is read more slowly than it could be, and how much; None where it is not."""

    @property
    def name(self) -> str: ...

    @property
    def chunk(self) -> int | None: ...

    @property
    def slow(self) -> str | None: ...

    @property
    def codec(self) -> Codec | None: ...

    def pieces(self, begin: np.ndarray, end: np.ndarray) -> Pieces:
        """What to read for rows of the elements begin..end, both ascending; rows may repeat."""

    def read(self, start: int, stop: int) -> np.ndarray:
        """The elements of the piece from `start` on, at least to `stop`; OSError naming file and place if not."""


class Table(NamedTuple):
    """Where chunks lie: size[i] bytes at place[i] of the open file fds[i // per_file]. All is within the files."""

    fds: np.ndarray
    per_file: int
    place: np.ndarray
    size: np.ndarray

    def packed(self, i: int) -> bytes:
        return os.pread(self.fds[i // self.per_file], self.size[i], self.place[i])


class Chunked:
    """Compressed chunks of one size, in a table or each in a file of its own (`packed(i)` gives its bytes).

    The checksum of DEFLATE is of a whole chunk, and often only the first rows of one are wanted. verify: "first"
    decodes a chunk whole the first time that any of it is wanted, and later as far as it is wanted; "always" decodes
    it whole each time; "never" looks at the checksums of those chunks alone that are wanted to their end.
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
        """The elements of the chunk that begins at `start`."""
        i = start // self.chunk
        place = f"chunk {i} (elements {start} to {min(start + self.chunk, self.length)})"
        with reading(self.name, place):
            return self.codec.decode(self.packed(i), self.whole)


class Plain:
    """Uncompressed elements of a file, in one segment or several that no row crosses.

    edges: int64 (segments + 1,), the first element of each and the length; places: the byte at which each begins.
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
    """Any other array, through the library that knows its storage. check: is called after the element has been read
    with which a chunk begins, and raises where that is no longer what it was."""

    codec = None

    def __init__(self, name: str, array: Any, why: str, check: Callable[[int], None] = lambda start: None) -> None:
        self.name, self.array, self.check = name, array, check
        self.chunk = array.chunks[0] if array.chunks else THROUGH_SLICE
        library = type(array).__module__.split(".")[0]
        self.slow = f"is read through {library}, {THROUGH_SLOWER}: {why}"

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
    """Whatever a codec or a library raises becomes an OSError that names the array and the place in it."""
    try:
        yield
    except Exception as error:
        raise OSError(f"{name}, {place}, cannot be read: {one_line(error)}") from error


def read_whole(array: Array, length: int) -> np.ndarray:
    """All elements of an array, by its pieces."""
    step = array.chunk or max(length, 1)
    pieces = [array.read(start, min(start + step, length)) for start in range(0, length, step)]
    return np.concatenate(pieces)[:length] if pieces else np.empty(0, np.int64)


def _bytes(array: Chunked | Plain, start: np.ndarray, stop: np.ndarray) -> np.ndarray:
    """Those of each piece's elements, decoded."""
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
                place = n - 1 - (previous - c)  # a row that comes twice may begin in a chunk before the last
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
