"""Codecs that decode a chunk without holding Python's lock.

DEFLATE is libdeflate's, the fastest of those tried (docs/native.md); it decodes whole streams only, so the head of
a chunk is zlib-ng's. Blosc and Zstandard are numcodecs', as zarr's own.
"""

from collections.abc import Callable

import deflate
import numba
import numpy as np
from numcodecs.blosc import decompress as blosc
from numcodecs.zstd import decompress as zstd
from zlib_ng import zlib_ng

HEAD = 0.6  # of a chunk, up to which inflating the head alone is faster than libdeflate is with the whole

Decode = Callable[[bytes, int], np.ndarray]
"""(bytes of a chunk, elements wanted from its start) -> those elements or more."""


def inflate(dtype: np.dtype, chunk: int, shuffled: bool) -> Decode:
    """Of zlib streams that hold `chunk` elements, their bytes shuffled by HDF5's filter or not."""
    whole = chunk * dtype.itemsize

    def decode(packed: bytes, wanted: int) -> np.ndarray:
        if shuffled or wanted > HEAD * chunk:
            raw = deflate.zlib_decompress(packed, whole)
            return unshuffled(raw, dtype) if shuffled else np.frombuffer(raw, dtype)
        return np.frombuffer(zlib_ng.decompressobj().decompress(packed, wanted * dtype.itemsize), dtype)

    return decode


def numcodec(name: str, dtype: np.dtype, shuffled: bool) -> Decode:
    """Of "blosc" or "zstd", as numcodecs decodes them."""
    decompress = {"blosc": blosc, "zstd": zstd}[name]

    def decode(packed: bytes, wanted: int) -> np.ndarray:
        raw = decompress(packed)
        return unshuffled(raw, dtype) if shuffled else np.frombuffer(raw, dtype)

    return decode


def plain(dtype: np.dtype, shuffled: bool) -> Decode:
    """Of chunks that are not compressed."""
    return lambda packed, wanted: unshuffled(packed, dtype) if shuffled else np.frombuffer(packed, dtype)


def unshuffled(raw: bytes, dtype: np.dtype) -> np.ndarray:
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
