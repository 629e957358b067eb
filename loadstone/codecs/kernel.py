"""The compiled loop: reads chunks, decodes them and copies their rows, without returning to Python in between.

If the loop returned to Python after each step, it would need the GIL three times per chunk, and threads would wait for
each other.
"""

import os
import threading

import numpy as np

from loadstone.codecs import blosc, lz4
from loadstone.codecs.compiled import compiled
from loadstone.codecs.deflate import inflate
from loadstone.codecs.intrinsics import LINE, borrowed, call, copied, store8, streamed
from loadstone.codecs.registry import ADVISE, BLOSC, C_FUNCTIONS, DEFLATE, PLAIN

WILL_NEED = getattr(os, "POSIX_FADV_WILLNEED", 0)
MOST_ADVISED = 2**20  # bytes; of a longer part Linux reads only as much as the disk takes at once, often 1.3 MB
CHECKSUM_BYTES = 4  # at the end of a zlib stream

_thread = threading.local()


def copy_pieces(codec, dtype, pieces, begin, end, target, out, n_genes) -> np.ndarray:
    """Reads and decodes pieces, and copies the elements of their rows to `out`.

    codec: PLAIN, DEFLATE or BLOSC. dtype: the dtype of the decoded elements. pieces: `arrays.Pieces`. begin, end,
    target, out, n_genes: see `scatter`. Returns the indices of the pieces that could not be read or decoded, or that
    hold an invalid gene index. Scratch memory is kept for the next call in the same thread.
    """
    packed = scratch("packed", inflate.SLOTS, int(pieces.size.max()) + inflate.IN_SLACK)
    raw = scratch("raw", inflate.SLOTS, int(pieces.wanted.max()) + inflate.OUT_SLACK)
    failed = np.zeros(len(pieces.start), bool)
    pread, function, like = C_FUNCTIONS[PLAIN], C_FUNCTIONS[codec], np.empty(0, dtype)
    rest = pieces, begin, end, target, packed, raw, like, out, n_genes, failed
    if codec == DEFLATE:
        _copy_inflated(pread, function, *_inflating(), *rest)
    else:
        _copy_decoded(codec, pread, function, *rest)
    return np.flatnonzero(failed)


def scratch(name: str, rows: int, n: int) -> np.ndarray:
    memory = getattr(_thread, name, None)
    if memory is None or memory.shape[1] < n:
        memory = np.empty((rows, -(-n // 64) * 64), np.uint8)
        setattr(_thread, name, memory)
    return memory


def _inflating() -> tuple[np.ndarray, ...]:
    """The working memory of inflate.py for this thread, allocated at the first call."""
    if not hasattr(_thread, "inflating"):
        _thread.inflating = inflate.memory()
    return _thread.inflating


def advise(fds, places, sizes) -> None:
    """Tells the kernel that these parts of files will be read soon, so that the disk reads many at the same time.

    fds: file descriptors. places, sizes: offsets and lengths in bytes. Each is int64 (parts,).
    """
    if ADVISE:
        _advise(ADVISE, fds, places, sizes)


@compiled
def _advise(function, fds, places, sizes):
    for i in range(len(fds)):
        for start in range(0, sizes[i], MOST_ADVISED):
            n = min(MOST_ADVISED, sizes[i] - start)
            call(function, (fds[i], places[i] + start, n, np.int64(WILL_NEED)))


@compiled
def scatter(values, start, begin, end, target, out, n_genes):
    """Copies the elements of rows from `values` to `out`. Returns False if it stopped at an invalid gene index.

    values: consecutive elements of an array, from element `start` on. Row i has the elements begin[i] to end[i]
    (exclusive) of the array; its first element is copied to out[target[i]], the others follow. Elements that are not in
    `values` are skipped. n_genes: the copied values must be gene indices, 0 to n_genes - 1; -1: they are not checked.
    """
    stop = start + len(values)
    for row in range(len(begin)):
        a, b = max(begin[row], start), min(end[row], stop)
        if a >= b:
            continue
        place, first, n = a + target[row] - begin[row], a - start, b - a
        if n_genes >= 0 and not _are_genes(values[first : first + n], n_genes):
            return False
        if values.dtype == out.dtype:
            stream(values[first:].ctypes.data, out[place:].ctypes.data, n * out.itemsize)
        else:
            # Unsigned indices cannot be negative, so numba adds no code for wraparound and the loop is vectorized.
            to, at = np.uint64(place), np.uint64(first)
            for k in range(np.uint64(n)):
                out[to + k] = values[at + k]
    return True


@compiled
def _are_genes(values, n_genes):
    """Whether all values are 0 to n_genes - 1. With `if` the loop is vectorized, 13 times as fast as min and max."""
    low = high = values[0]
    for k in range(len(values)):
        value = values[k]
        if value < low:
            low = value
        if value > high:
            high = value
    return low >= 0 and high < n_genes


@compiled
def stream(source, target, n):
    """Copies n bytes with non-temporal stores. A normal store would first read the cache line from memory.

    Non-temporal stores are not ordered. But this thread acquires the GIL, which is a memory barrier, before another
    thread reads the bytes.
    """
    head = min(-target % LINE, n)
    tail = head + (n - head) // LINE * LINE
    copied(source, target, head)
    for k in range(head, tail, LINE):
        streamed(source + k, target + k)
    copied(source + tail, target + tail, n - tail)


@compiled
def _copy_decoded(codec, pread, library, pieces, begin, end, target, packed, raw, like, out, n_genes, failed):
    packed, raw, out = borrowed(packed), borrowed(raw), borrowed(out)
    begin, end, target = borrowed(begin), borrowed(end), borrowed(target)
    chunk, result = np.int64(packed.ctypes.data), np.int64(raw.ctypes.data)
    for i in range(len(pieces.fd)):
        size, wanted = pieces.size[i], pieces.wanted[i]
        into = result if codec == PLAIN else chunk
        failed[i] = call(pread, (pieces.fd[i], into, size, pieces.place[i])) != size
        if codec == BLOSC and not failed[i]:
            status = lz4.decode(chunk, size, raw[0, :wanted], raw[1])
            if status == lz4.UNKNOWN and blosc.is_sound(chunk, size, wanted):
                failed[i] = np.int32(call(library, (chunk, result, wanted, np.int64(1)))) != wanted
            else:
                failed[i] = status != lz4.DONE
        if not failed[i]:
            failed[i] = not scatter_piece(pieces, i, raw[0], like, begin, end, target, out, n_genes)


@compiled
def _copy_inflated(
    pread, adler32, state, codes, books, pieces, begin, end, target, packed, raw, like, out, n_genes, failed
):  # fmt: skip
    state, codes, books = borrowed(state), borrowed(codes), borrowed(books)
    packed, raw, out = borrowed(packed), borrowed(raw), borrowed(out)
    begin, end, target = borrowed(begin), borrowed(end), borrowed(target)
    fds, places, sizes, wanted, whole = pieces.fd, pieces.place, pieces.size, pieces.wanted, pieces.whole
    held, coming = np.full(inflate.SLOTS, -1), 0
    while True:
        for slot in range(inflate.SLOTS):
            stream, result = np.int64(packed[slot].ctypes.data), np.int64(raw[slot].ctypes.data)
            while held[slot] < 0 and coming < len(fds):
                i, coming = coming, coming + 1
                failed[i] = call(pread, (fds[i], stream, sizes[i], places[i])) != sizes[i] or not inflate.begin(
                    state, codes, books, slot, stream, sizes[i], result, wanted[i], wanted[i] < whole[i]
                )
                if not failed[i]:
                    held[slot] = i
            if held[slot] < 0:
                inflate.rest(state, codes, slot, result)
        if (held < 0).all():
            return
        slot, status = inflate.run(state, codes, books)
        i = held[slot]
        held[slot] = -1
        if status == inflate.DONE and wanted[i] == whole[i]:
            checksum = call(adler32, (np.int64(1), np.int64(raw[slot].ctypes.data), wanted[i])) & 0xFFFFFFFF
            status = inflate.DONE if checksum == _big_endian(packed[slot], sizes[i] - CHECKSUM_BYTES) else inflate.BAD
        failed[i] = status == inflate.BAD
        if not failed[i]:
            if wanted[i] == whole[i]:
                store8(pieces.mark[i], 1)
            failed[i] = not scatter_piece(pieces, i, raw[slot], like, begin, end, target, out, n_genes)


@compiled
def scatter_piece(pieces, i, raw, like, begin, end, target, out, n_genes):
    values = raw[: pieces.wanted[i] // like.itemsize * like.itemsize].view(like.dtype)
    rows = slice(pieces.first[i], pieces.last[i])
    return scatter(values, pieces.start[i], begin[rows], end[rows], target[rows], out, n_genes)


@compiled
def _big_endian(stream, at):
    number = 0
    for k in range(CHECKSUM_BYTES):
        number = number << 8 | stream[at + k]
    return number
