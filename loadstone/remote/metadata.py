"""HDF5's metadata in an object: read in few rounds of many requests, where HDF5 would make one request after another.

HDF5 reads the structures of a file one by one, since each tells where the next one is. At 30 ms a request, a file with
a thousand of them takes half a minute to open. Here HDF5 reads from memory. A read of bytes that are not there yet
fails, and is noted; the noted bytes of all files are then requested together, and the files are tried again. So the
time is that of the longest chain of structures, whatever the number of files. In a B-tree of chunks the chain is as
long as the tree is high: when a node comes, its children are requested, before HDF5 asks for them.
"""

import io
import struct
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from loadstone.remote.objects import CONNECTIONS, Object

BLOCK = 1 << 16  # bytes; what HDF5 asks for is read in whole blocks
AROUND = 1  # block that is read before and after it, since structures that were written together are near each other
TAIL = 16  # blocks at the end of a file, where anndata writes the names of cells and genes
MOST_BLOCKS = 64  # at once, of what is read from its beginning to its end: it doubles up to this
HEADER = struct.Struct("<4sBBHQQ")  # of a node: "TREE", type, level, entries, left and right sibling
CHUNKS = 1  # the type of a node whose leaves are chunks
ENTRIES = 64  # of a node at most, unless the creator of the file chose otherwise, which h5py does not
ADDRESS = 8  # bytes

Range = tuple[int, int]
"""The offset of the first byte, and the number of bytes."""


class MissingError(OSError):
    """Bytes are read that are not in memory yet."""


class Metadata(io.RawIOBase):
    """A file-like view of an object for h5py. It reads what `fetch` brought, and notes in `wanted` what else is read.

    waits: requests at once what else is read, instead of raising MissingError. Its text is the URL, which becomes the
    name of the h5py file.
    """

    def __init__(self, source: Object, *, waits: bool = False) -> None:
        super().__init__()
        self.source, self.waits, self.at = source, waits, 0
        self.blocks: dict[int, bytes] = {}
        self.ranges: dict[int, bytes] = {}  # by their offset: nodes and chunks, which are read as a whole
        self.wanted: dict[Range, None] = {}
        self.nodes = 0
        self.want_blocks(0, 1)
        self.want_blocks(max(0, source.size - TAIL * BLOCK), TAIL * BLOCK)

    def __repr__(self) -> str:
        return self.source.url

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self.at = offset + (0, self.at, self.source.size)[whence]
        return self.at

    def tell(self) -> int:
        return self.at

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self.bytes_at(self.at, len(buffer))
        buffer[: len(data)] = data
        self.at += len(data)
        return len(data)

    def bytes_at(self, place: int, size: int) -> bytes:
        """`size` bytes at offset `place`, fewer at the end of the object. MissingError if they are not in memory."""
        size = max(0, min(size, self.source.size - place))
        if len(self.ranges.get(place, b"")) >= size:
            data = self.ranges[place][:size] if size else b""
        else:
            first, last = place // BLOCK, -(-(place + size) // BLOCK)
            if any(block not in self.blocks for block in range(first, last)):
                self.want_blocks(place, size)
                if self.waits:
                    with ThreadPoolExecutor(CONNECTIONS) as pool:
                        fetch([self], pool)
                    return self.bytes_at(place, size)
                raise MissingError(f"{self.source.url}: bytes {place:,} to {place + size:,} have not come yet")
            joined = b"".join(self.blocks[block] for block in range(first, last))
            data = joined[place - first * BLOCK :][:size]
        self.want_children(data)
        return data

    def want(self, place: int, size: int) -> None:
        """Notes that these bytes will be read as a whole."""
        if place not in self.ranges and place >= 0 and place + size <= self.source.size:
            self.wanted[place, size] = None

    def want_blocks(self, place: int, size: int) -> None:
        """Notes the blocks that hold these bytes, and those around; more after them if the blocks before were read."""
        first, last = place // BLOCK, -(-(place + size) // BLOCK)
        before = 0
        while before < MOST_BLOCKS and first - before - 1 in self.blocks:
            before += 1
        for block in range(max(0, first - AROUND), last + max(AROUND, before)):
            if block not in self.blocks and block * BLOCK < self.source.size:
                self.wanted[block * BLOCK, min(BLOCK, self.source.size - block * BLOCK)] = None

    def want_children(self, node: bytes) -> None:
        """Notes the children of a node of a B-tree of chunks, unless they are chunks. Other bytes are ignored."""
        if len(node) < HEADER.size or not node.startswith(b"TREE"):
            return
        _, kind, level, entries, _, _ = HEADER.unpack(node[: HEADER.size])
        key, rest = divmod(len(node) - HEADER.size - ENTRIES * ADDRESS, ENTRIES + 1)
        if kind != CHUNKS or level == 0 or entries > ENTRIES or rest or key < 2 * ADDRESS:
            return
        self.nodes += entries
        if self.nodes * len(node) > self.source.size:  # a damaged file: its nodes do not fit into it
            return
        for i in range(entries):
            (child,) = struct.unpack_from("<Q", node, HEADER.size + key + i * (key + ADDRESS))
            self.want(child, len(node))

    def take(self, asked: Range, data: bytes) -> None:
        """Keeps bytes that came, and notes the children of a node."""
        place, size = asked
        if place % BLOCK == 0 and (size == BLOCK or place + size == self.source.size):
            self.blocks[place // BLOCK] = data
        else:
            self.ranges[place] = data
            self.want_children(self.ranges[place])


def in_rounds[T](files: Sequence[Metadata], read: Callable[[int], T], pool: ThreadPoolExecutor) -> list[T]:
    """[read(0), read(1), ...] for each file; what misses bytes is called again when they have come.

    pool: makes the requests. Raises what `read` raises, unless bytes are missing, and the errors of `Object.read`.
    """
    results: dict[int, T] = {}
    pending = list(range(len(files)))
    while pending:
        fetch([files[i] for i in pending], pool)
        for i in list(pending):
            try:
                results[i] = read(i)
                pending.remove(i)
            except Exception:
                if not files[i].wanted:
                    raise
    return [results[i] for i in range(len(files))]


def fetch(files: Iterable[Metadata], pool: ThreadPoolExecutor) -> None:
    """Requests all that is wanted of the files at the same time, and what is then wanted, until nothing is."""
    while True:
        total = sum(size for file in files for _, size in file.wanted)
        longest = max(BLOCK, total // CONNECTIONS)  # so that slow connections share what is wanted
        asked = [(file, wanted) for file in files for wanted in joined(file.wanted, longest)]
        for file in files:
            file.wanted = {}
        if not asked:
            return
        for (file, together), data in zip(asked, pool.map(_read, asked), strict=True):
            first = together[0][0]
            for place, size in together:
                file.take((place, size), data[place - first : place - first + size])


def joined(wanted: Iterable[Range], longest: int) -> list[list[Range]]:
    """The ranges, in groups that touch or overlap: each group is one request.

    longest: bytes of a group, after which another begins.
    """
    groups: list[list[Range]] = []
    end = -1
    for place, size in sorted(wanted):
        if place <= end and end - groups[-1][0][0] < longest:
            groups[-1].append((place, size))
        else:
            groups.append([(place, size)])
            end = -1
        end = max(end, place + size)
    return groups


def _read(asked: tuple[Metadata, list[Range]]) -> bytes:
    file, together = asked
    first, end = together[0][0], max(place + size for place, size in together)
    return file.source.read(first, end - first)
