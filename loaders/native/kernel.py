"""The compiled loop: reads chunks, decodes them and copies rows, without Python between one chunk and the next.

With Python between them, two threads decoded at 1.3 times the rate of one: each chunk asked for Python's lock three
times, and waited for whoever held it (docs/native.md).
"""

import ctypes
import os
import threading

import numba
import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from loaders.native.codecs import (
    ADVISE,
    ALLOCATE_DECOMPRESSOR,
    BLOSC,
    C_FUNCTIONS,
    DEFLATE,
    INFLATE,
    INFLATE_RESET,
    PLAIN,
    ZLIB,
)

HEAD = 0.35  # of a chunk, up to which zlib with its head alone is faster than libdeflate with the whole
HAS_HEADS = bool(INFLATE and INFLATE_RESET)
SYNC_FLUSH = 2
WILL_NEED = getattr(os, "POSIX_FADV_WILLNEED", 0)
# zlib's z_stream, in words of 8 bytes: where next_in, avail_in, next_out and avail_out are, and its length.
NEXT_IN, AVAIL_IN, NEXT_OUT, AVAIL_OUT, STREAM_WORDS = 0, 1, 3, 4, 14

NO_STREAM = np.zeros(STREAM_WORDS, np.int64)

_own = threading.local()


def copy_pieces(codec, whole, fds, places, sizes, wanted, starts, firsts, lasts, begin, end, target, out, dtype) -> int:
    """Reads and decodes pieces and copies what each row has in them to its place in `out`.

    Of piece i: sizes[i] bytes at places[i] of the open file fds[i] decode to `wanted[i]` bytes if it is a head, and to
    `whole` otherwise, the first element of which is starts[i] of the array; the rows firsts[i] to lasts[i] take
    part in it. Returns the number of the piece that could not be read, or -1. The memory that it needs is kept for
    the thread's next call.
    """
    if codec != PLAIN:
        wanted = np.where(is_head(wanted, whole) if codec == DEFLATE else False, wanted, whole)
    packed = _scratch("packed", int(sizes.max()))
    raw = _scratch("raw", int(wanted.max()))[: int(wanted.max()) // dtype.itemsize * dtype.itemsize].view(dtype)
    stream, decompressor = (_zlib_stream(), _decompressor()) if codec == DEFLATE else (NO_STREAM, 0)
    return _copy_pieces(
        codec, whole, C_FUNCTIONS[PLAIN], C_FUNCTIONS[codec], decompressor, INFLATE, INFLATE_RESET, stream,
        fds, places, sizes, wanted, starts, firsts, lasts, begin, end, target, packed, raw, out,
    )  # fmt: skip


def is_head(wanted: np.ndarray, whole: int) -> np.ndarray:
    """Whether so few bytes are wanted of chunks of `whole` that zlib should inflate no more than them."""
    return wanted <= (HEAD * whole if HAS_HEADS else -1)


def _scratch(name: str, n: int) -> np.ndarray:
    found = getattr(_own, name, None)
    if found is None or len(found) < n:
        found = np.empty(n, np.uint8)
        setattr(_own, name, found)
    return found


def _decompressor() -> int:
    """libdeflate's working memory, which a thread keeps."""
    if not hasattr(_own, "decompressor"):
        _own.decompressor = ctypes.CFUNCTYPE(ctypes.c_void_p)(ALLOCATE_DECOMPRESSOR)()
    return _own.decompressor


def _zlib_stream() -> np.ndarray:
    """A z_stream that has been initialised, which a thread keeps."""
    if not hasattr(_own, "stream"):
        _own.stream = np.zeros(STREAM_WORDS, np.int64)
        if HAS_HEADS:
            zlib = ctypes.CDLL(ZLIB)
            zlib.zlibVersion.restype = ctypes.c_char_p
            at, size = ctypes.c_void_p(_own.stream.ctypes.data), _own.stream.nbytes
            if status := zlib.inflateInit_(at, zlib.zlibVersion(), size):
                raise RuntimeError(f"zlib cannot be initialised: {status}")
    return _own.stream


@intrinsic
def _call(typing_context, address, arguments):
    """Calls the C function at an address, all of whose arguments are words or fit in one."""

    def generate(context, builder, signature, values):
        word = ir.IntType(64)
        count = signature.args[1].count
        function = builder.inttoptr(values[0], ir.FunctionType(word, [word] * count).as_pointer())
        return builder.call(function, [builder.extract_value(values[1], i) for i in range(count)])

    return types.int64(types.int64, arguments), generate


def advise(fds, places, sizes) -> None:
    """Tells the system that these pieces of files will be read, so that the disk is at work on many of them at once."""
    if ADVISE:
        _advise(ADVISE, fds, places, sizes)


@numba.njit(nogil=True, cache=True)
def _advise(function, fds, places, sizes):
    for i in range(len(fds)):
        _call(function, (fds[i], places[i], sizes[i], np.int64(WILL_NEED)))


@numba.njit(nogil=True, cache=True)
def scatter(values, start, begin, end, target, out):
    """Copies what rows of the elements begin..end have of `values`, the first of which is `start`, to their place."""
    stop = start + len(values)
    for row in range(len(begin)):
        a, b = max(begin[row], start), min(end[row], stop)
        if a < b:
            # Unsigned, so that no index is looked at for being negative and the loop becomes vector code.
            place, first, n = np.uint64(a + target[row] - begin[row]), np.uint64(a - start), np.uint64(b - a)
            for k in range(n):
                out[place + k] = values[first + k]


@numba.njit(nogil=True, cache=True)
def _copy_pieces(
    codec, whole, pread, decode, decompressor, inflate, inflate_reset, stream,
    fds, places, sizes, wanted, starts, firsts, lasts, begin, end, target, packed, raw, out,
):  # fmt: skip
    to = np.int64(raw.ctypes.data)
    for i in range(len(starts)):
        into = to if codec == PLAIN else np.int64(packed.ctypes.data)
        if _call(pread, (fds[i], into, sizes[i], places[i])) != sizes[i]:
            return i
        if codec == DEFLATE and wanted[i] < whole:
            _call(inflate_reset, (np.int64(stream.ctypes.data),))
            stream[NEXT_IN], stream[AVAIL_IN], stream[NEXT_OUT], stream[AVAIL_OUT] = into, sizes[i], to, wanted[i]
            _call(inflate, (np.int64(stream.ctypes.data), np.int64(SYNC_FLUSH)))
            if np.int32(stream[AVAIL_OUT]) != 0:
                return i
        elif codec == DEFLATE:
            if np.int32(_call(decode, (decompressor, into, sizes[i], to, whole, np.int64(0)))) != 0:
                return i
        elif codec == BLOSC and np.int32(_call(decode, (into, to, wanted[i], np.int64(1)))) != wanted[i]:
            return i
        mine = slice(firsts[i], lasts[i])
        scatter(raw[: wanted[i] // raw.itemsize], starts[i], begin[mine], end[mine], target[mine], out)
    return -1
