"""The names of genes as HDF5 stores them: strings of any length, in heaps. Read at once, and without an object a name.

h5py makes a Python object of each name, which for 62,710 genes takes 23 ms with their hash, and holds up all other
threads; here both take 6 ms. Whatever is not as h5py and anndata write it is left to h5py.
Source: HDF5 File Format Specification, "Global Heap".
"""

from typing import Any

import h5py
import numpy as np

from loadstone.codecs.compiled import compiled
from loadstone.reading.arrays import Read

REFERENCE = np.dtype([("length", "<u4"), ("heap", "<u8"), ("index", "<u4")])  # to a name
HEAD = 16  # bytes before the objects of a heap, and before each object
LONGEST_HEAP = 1 << 20  # bytes
MOST_BYTES = 1 << 26  # of all heaps, and of all names


def joined(column: Any, path: str, fd: int, read: Read) -> tuple[np.ndarray, np.ndarray] | None:
    """(the lengths of all names in bytes, int64 (names,), the names one after another, uint8); None: h5py must read.

    path, fd: of the file. read: see `arrays.Table`. Errors: those of `read`.
    """
    place = _place(column, path)
    if place is None:
        return None
    stored = read(fd, len(column) * REFERENCE.itemsize, place)
    if len(stored) < len(column) * REFERENCE.itemsize:
        return None
    references = np.frombuffer(stored, REFERENCE)
    places, which = np.unique(references["heap"], return_inverse=True)
    total = int(references["length"].sum(dtype=np.int64))
    if not len(places) or places[-1] > 2**62 or total > MOST_BYTES:
        return None
    heaps: list[bytes] = []
    starts = np.zeros(len(places) + 1, np.int64)
    for i, place in enumerate(places.tolist()):
        heaps.append(_heap(fd, place, read) if place else b"")  # an empty name is in none
        starts[i + 1] = starts[i] + len(heaps[-1])
        if starts[i + 1] > MOST_BYTES:
            return None
    lengths, names = np.empty(len(references), np.int64), np.empty(total, np.uint8)
    length, index = (np.ascontiguousarray(references[name]) for name in ("length", "index"))
    bytes_of_heaps = np.frombuffer(b"".join(heaps), np.uint8)
    n = _gather(bytes_of_heaps, starts, length, which, index, 2 * len(heaps), lengths, names)
    return None if n < 0 else (lengths, names[:n])


def _place(column: Any, path: str) -> int | None:
    """The offset of the references to the names; None if they are not strings of any length in a piece of the file."""
    if not isinstance(column, h5py.Dataset) or column.file.filename != path:
        return None
    kind = h5py.check_string_dtype(column.dtype)
    if kind is None or kind.length is not None or column.ndim != 1:
        return None
    creation, of_file = column.id.get_create_plist(), column.file.id.get_create_plist()
    if creation.get_layout() != h5py.h5d.CONTIGUOUS or creation.get_external_count():
        return None
    if of_file.get_sizes() != (8, 8) or of_file.get_userblock():
        return None
    return column.id.get_offset()


def _heap(fd: int, place: int, read: Read) -> bytes:
    """The bytes of a heap; b"" if there is none, or a longer one than expected."""
    head = read(fd, HEAD, place)
    size = int.from_bytes(head[8:], "little")
    if not head.startswith(b"GCOL\x01") or not HEAD <= size <= LONGEST_HEAP:
        return b""
    return read(fd, size, place)


@compiled
def _gather(heaps, starts, length, heap, index, most_turns, lengths, names):
    """Writes the names, and their lengths. Returns the bytes of all names, or -1 for what is not as expected.

    heaps: uint8, the bytes of all heaps, of which heap i has those from starts[i] to starts[i + 1]. length, heap,
    index: of each name. most_turns: as often, at most, may the heap change from one name to the next.
    """
    objects = np.full((2**16, 3), -1, np.int64)  # by index: the place and size of an object, and the number of the heap
    current, n = np.int64(-1), np.int64(0)
    for i in range(len(length)):
        if length[i] == 0:
            lengths[i] = 0
            continue
        if heap[i] != current:
            current, most_turns = heap[i], most_turns - 1
            if most_turns < 0 or not _walk(heaps, starts[current], starts[current + 1], current, objects):
                return -1
        if index[i] >= len(objects):
            return -1
        place, most, owner = objects[index[i], 0], objects[index[i], 1], objects[index[i], 2]
        if owner != current or length[i] > most:
            return -1
        size = np.int64(0)
        while size < length[i] and heaps[place + size]:  # h5py ends a name at a byte 0
            names[n + size] = heaps[place + size]
            size += 1
        lengths[i] = size
        n += size
    return n


@compiled
def _walk(heaps, at, end, number, objects):
    """Notes the objects of the heap between `at` and `end`. Returns whether they lie in it."""
    at += HEAD
    while at + HEAD <= end:
        index, size = _number(heaps, at, 2), _number(heaps, at + 8, 8)
        if index == 0:  # what is free
            return True
        if size < 0 or size > end - at - HEAD:
            return False
        objects[index, 0], objects[index, 1], objects[index, 2] = at + HEAD, size, number
        at += HEAD + (size + 7) // 8 * 8
    return True


@compiled
def _number(part, at, n):
    value = np.uint64(0)
    for i in range(n):
        value |= np.uint64(part[at + i]) << np.uint64(8 * i)
    return np.int64(value)
