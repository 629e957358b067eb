"""The codecs, which decode chunks. All of them release the GIL while they decode.

The compiled loop (kernel.py) decodes DEFLATE with deflate/inflate.py, and LZ4 in Blosc with lz4.py. Outside the loop,
`Codec.decode` uses libdeflate for DEFLATE, the fastest of the libraries tried (docs/native.md), numcodecs for Blosc and
Zstandard, and lzf.py for LZF.
"""

import ctypes
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import deflate._deflate
import numcodecs.blosc
import numcodecs.fletcher32
import numcodecs.zstd
import numpy as np

from loadstone.codecs import intrinsics
from loadstone.codecs.blosc import check
from loadstone.codecs.compiled import compiled
from loadstone.codecs.lzf import decompress as decompress_lzf

FLETCHER32 = numcodecs.fletcher32.Fletcher32()
PLAIN, DEFLATE, BLOSC = 0, 1, 2
"""The numbers of the codecs that the compiled loop (kernel.py) decodes."""

# The factors were measured on one processor: docs/native.md, "What is slower".
WITHOUT_LOOP = "decoded chunk by chunk through Python, about 2 times slower"
WITHOUT_SHUFFLE = "decoded without the processor's byte shuffle (SSSE3 or NEON), about 1.6 times slower"


class Codec(NamedTuple):
    """How the chunks of an array are decoded.

    dtype: the dtype of the elements. decode(packed, n): the elements of a chunk from its stored bytes, (elements,);
    raises unless these decode to n bytes. compiled: PLAIN, DEFLATE or BLOSC; None if the compiled loop cannot decode
    the chunks. slow: the reason why decoding is slow, for a warning; None if it is not.
    """

    dtype: np.dtype
    decode: Callable[[bytes, int], np.ndarray]
    compiled: int | None
    slow: str | None


def plain(dtype: np.dtype, **filters: Any) -> Codec:
    """The codec of chunks that are not compressed. filters: `shuffled` and `summed` of `_codec`, also below."""
    return _codec(dtype, lambda packed, whole: packed, PLAIN, **filters)


def inflate(dtype: np.dtype, **filters: Any) -> Codec:
    """The codec of chunks that are zlib streams, as written by HDF5's gzip filter."""
    return _codec(dtype, deflate.zlib_decompress, DEFLATE, **filters)


def blosc(dtype: np.dtype, **filters: Any) -> Codec:
    return _codec(dtype, _unpack_blosc, BLOSC, **filters)


def zstd(dtype: np.dtype, **filters: Any) -> Codec:
    return _codec(dtype, _unpack_zstd, None, name="Zstandard", **filters)


def lzf(dtype: np.dtype, **filters: Any) -> Codec:
    return _codec(dtype, decompress_lzf, None, name="lzf", **filters)


def irregular(
    dtype: np.dtype, n: int, fill: Any, chunk: Callable[[int], np.ndarray | None], why: str
) -> tuple[Codec, Callable[[int], np.ndarray]]:
    """(codec, where) for `arrays.Chunked`, for an array whose chunks are not all stored in the same way.

    `where` is a function that returns the decoded bytes of chunk i, uint8. n: the number of elements per chunk.
    chunk(i): the elements of chunk i, or None if it was never written; all its elements then have the value `fill`.
    why: the reason, for `Codec.slow`.
    """

    def raw(i: int) -> np.ndarray:
        values = chunk(i)
        return (np.full(n, fill, dtype) if values is None else values).view(np.uint8)

    return plain(dtype)._replace(compiled=None, slow=f"is {WITHOUT_LOOP}: {why}"), raw


def is_compiled(dtype: np.dtype) -> bool:
    """Whether the compiled loop can copy this dtype: integers, float32 and float64 in the byte order of the machine."""
    return dtype.isnative and dtype.kind in "iuf" and dtype != np.float16


def _codec(
    dtype: np.dtype,
    unpack: Callable[[bytes, int], Any],
    compiled: int | None,
    *,
    name: str = "",
    shuffled: bool = False,
    summed: bool = False,
) -> Codec:
    """Makes a codec. unpack(packed, n): decompresses a chunk of n decoded bytes. compiled: see `Codec`.

    name: the name of a codec that the compiled loop does not have. shuffled: HDF5's shuffle filter was applied before
    compression. summed: HDF5's fletcher32 checksum follows the compressed bytes.
    """
    slow = None
    if shuffled or summed:
        which = "fletcher32" if summed else "shuffle"
        slow = f"is {WITHOUT_LOOP}: HDF5's {which} filter is not in the compiled loop"
    elif not is_compiled(dtype):
        slow = f"is {WITHOUT_LOOP}: the compiled loop does not know {dtype.str}"
    elif compiled is None:
        slow = f"is {WITHOUT_LOOP}: {name} is not in the compiled loop"
    elif not C_FUNCTIONS.get(compiled):
        slow = f"is {WITHOUT_LOOP}: {MISSING[compiled]} was not found"
    if slow:
        compiled = None
    elif compiled in (DEFLATE, BLOSC) and intrinsics.SHUFFLE is None:
        slow = f"is {WITHOUT_SHUFFLE}"

    def decode(packed: bytes, whole: int) -> np.ndarray:
        raw = unpack(FLETCHER32.decode(packed) if summed else packed, whole)
        if len(raw) != whole:
            raise ValueError(f"it holds {len(raw):,} bytes, not {whole:,}")
        return _unshuffled(raw, dtype) if shuffled else np.frombuffer(raw, dtype)

    return Codec(dtype, decode, compiled, slow)


def _unpack_blosc(packed: bytes, whole: int) -> bytes:
    check(packed, whole)
    return numcodecs.blosc.decompress(packed)


def _unpack_zstd(packed: bytes, whole: int) -> bytes:
    """Decompresses a Zstandard frame. ValueError if its header gives a decoded size other than `whole` bytes.

    This is checked first, because the library allocates as much memory as the header says.
    """
    claimed = _zstd_content(packed)
    if claimed is not None and claimed != whole:
        raise ValueError(f"its frame claims to hold {claimed:,} bytes, not {whole:,}")
    return numcodecs.zstd.decompress(packed)


def _zstd_content(packed: bytes) -> int | None:
    """The decoded size in bytes in the header of a Zstandard frame (RFC 8878, 3.1.1.1); None if it is not given.

    ValueError if `packed` is too short for a header.
    """
    if len(packed) < 6:
        raise ValueError("it is too short for a frame of Zstandard")
    flags = packed[4]
    is_single, size_flag = flags >> 5 & 1, flags >> 6
    n = 1 << size_flag if size_flag or is_single else 0
    at = 5 + (1 - is_single) + (0, 1, 2, 4)[flags & 3]
    if len(packed) < at + n:
        raise ValueError("it is too short for a frame of Zstandard")
    return int.from_bytes(packed[at : at + n], "little") + 256 * (n == 2) if n else None


def _unshuffled(raw: bytes, dtype: np.dtype) -> np.ndarray:
    """Undoes HDF5's shuffle filter, which stores the first byte of every element, then every second byte, and so on."""
    n = len(raw) // dtype.itemsize
    planes = np.frombuffer(raw, np.uint8, n * dtype.itemsize).reshape(dtype.itemsize, n)
    out = np.empty((n, dtype.itemsize), np.uint8)
    _transpose(planes, out)
    return out.reshape(-1).view(dtype)


@compiled
def _transpose(planes, out):
    for i in range(out.shape[0]):
        for k in range(out.shape[1]):
            out[i, k] = planes[k, i]


def c_function(library: str | None, name: str) -> int:
    """The address of the C function `name` in a shared library (None: the C library); 0 if it cannot be found.

    The shared libraries are extension modules of Python packages, and a later version of a package may not export the
    function. Chunks of this codec are then decoded through Python, one by one.
    """
    try:
        return ctypes.cast(getattr(ctypes.CDLL(library), name), ctypes.c_void_p).value or 0
    except (AttributeError, OSError):
        return 0


# inflate.py and lz4.py assume a little-endian processor.
_decodes = sys.byteorder == "little"
C_FUNCTIONS = {
    PLAIN: c_function(None, "pread"),
    DEFLATE: _decodes and c_function(deflate._deflate.__file__, "libdeflate_adler32"),
    BLOSC: _decodes and c_function(numcodecs.blosc.__file__, "blosc_decompress_ctx"),
}
"""For each codec, the address of a C function that the compiled loop calls; 0 or False if it is not available.

PLAIN: reads from a file. DEFLATE: computes a checksum. BLOSC: decodes the Blosc chunks that lz4.py cannot decode.
"""

MISSING = {PLAIN: "pread", DEFLATE: "libdeflate_adler32", BLOSC: "blosc_decompress_ctx"}

ADVISE = c_function(None, "posix_fadvise")


def decoders() -> dict[str, str]:
    """For each codec, how float32 chunks are decoded on this machine: "compiled loop", or why that is slower."""
    makers = {"none": plain, "gzip": inflate, "Blosc LZ4": blosc, "Zstandard": zstd, "lzf": lzf}
    reasons = {name: codec(np.dtype(np.float32)).slow for name, codec in makers.items()}
    return {name: "compiled loop" if slow is None else slow.removeprefix("is ") for name, slow in reasons.items()}
