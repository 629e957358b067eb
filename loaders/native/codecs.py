"""Codecs that decode a chunk without holding Python's lock.

In the compiled loop DEFLATE is inflate.py's, and LZ4 in Blosc is lz4.py's. Else DEFLATE is libdeflate's, the fastest
library of those tried (docs/native.md); Blosc and Zstandard are numcodecs', as zarr's own.
"""

import ctypes
import sys
from collections.abc import Callable
from typing import NamedTuple

import deflate._deflate
import numba
import numcodecs.blosc
import numcodecs.zstd
import numpy as np

PLAIN, DEFLATE, BLOSC = 0, 1, 2
"""What the compiled loop of kernel.py can decode."""


class Codec(NamedTuple):
    """dtype: of the elements. decode: the bytes of a chunk -> its elements. compiled: one of the above, or None."""

    dtype: np.dtype
    decode: Callable[[bytes], np.ndarray]
    compiled: int | None


def plain(dtype: np.dtype, shuffled: bool = False) -> Codec:
    """Of chunks that are not compressed."""
    return _codec(dtype, shuffled, lambda packed: packed, PLAIN)


def inflate(dtype: np.dtype, chunk: int, shuffled: bool = False) -> Codec:
    """Of zlib streams that hold `chunk` elements."""
    whole = chunk * dtype.itemsize
    return _codec(dtype, shuffled, lambda packed: deflate.zlib_decompress(packed, whole), DEFLATE)


def blosc(dtype: np.dtype, shuffled: bool = False) -> Codec:
    return _codec(dtype, shuffled, numcodecs.blosc.decompress, BLOSC)


def zstd(dtype: np.dtype, shuffled: bool = False) -> Codec:
    return _codec(dtype, shuffled, numcodecs.zstd.decompress, None)


def _codec(dtype: np.dtype, shuffled: bool, decompress: Callable[[bytes], bytes], compiled: int | None) -> Codec:
    """shuffled: by HDF5's filter, before it was compressed."""
    if shuffled:
        return Codec(dtype, lambda packed: _unshuffled(decompress(packed), dtype), None)
    if not dtype.isnative or not C_FUNCTIONS.get(compiled):
        compiled = None
    return Codec(dtype, lambda packed: np.frombuffer(decompress(packed), dtype), compiled)


def _unshuffled(raw: bytes, dtype: np.dtype) -> np.ndarray:
    """Undoes HDF5's shuffle filter: all first bytes of the elements, then all second bytes, and so on."""
    n = len(raw) // dtype.itemsize
    planes = np.frombuffer(raw, np.uint8, n * dtype.itemsize).reshape(dtype.itemsize, n)
    out = np.empty((n, dtype.itemsize), np.uint8)
    _transpose(planes, out)
    return out.reshape(-1).view(dtype)


@numba.njit(nogil=True, cache=True)
def _transpose(planes, out):
    for i in range(out.shape[0]):
        for k in range(out.shape[1]):
            out[i, k] = planes[k, i]


def c_function(library: str | None, name: str) -> int:
    """The address of a C function in a shared library (None: of the C library); 0 where it is not to be had.

    The libraries are wheels' own modules, which need not go on showing what they stand on: without it the same
    codec is called through Python, chunk by chunk.
    """
    try:
        return ctypes.cast(getattr(ctypes.CDLL(library), name), ctypes.c_void_p).value or 0
    except (AttributeError, OSError):
        return 0


# inflate.py and lz4.py take the lowest byte of a word for the first.
_decodes = sys.byteorder == "little"
C_FUNCTIONS = {
    PLAIN: c_function(None, "pread"),
    DEFLATE: _decodes and c_function(deflate._deflate.__file__, "libdeflate_adler32"),
    BLOSC: _decodes and c_function(numcodecs.blosc.__file__, "blosc_decompress_ctx"),
}
"""What the compiled loop calls: to read, for a checksum, and for chunks of Blosc that lz4.py does not know."""

ADVISE = c_function(None, "posix_fadvise")
