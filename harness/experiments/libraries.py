"""The compiled loop with libdeflate and c-blosc instead of our own decoders, for comparison in `ablation`.

Reading, checks and copying are the same as in `kernel.copy_pieces`. Do not use this module for anything else:
libdeflate cannot decode only the head of a chunk, so it is stopped by an output buffer that is too small. The result is
correct only if the chunk has no stored blocks (RFC 1951).
"""

import ctypes
import threading

import deflate._deflate
import numba
import numpy as np

from loadstone.codecs import blosc, kernel
from loadstone.codecs.intrinsics import borrowed, call, store8
from loadstone.codecs.registry import BLOSC, C_FUNCTIONS, DEFLATE, PLAIN, c_function

LONGEST_MATCH = 258  # bytes; a match that does not fit into the output is not written
PATH = deflate._deflate.__file__
WHOLE, HEAD = c_function(PATH, "libdeflate_zlib_decompress"), c_function(PATH, "libdeflate_deflate_decompress")

_thread = threading.local()
_kernel_copies = kernel.copy_pieces


def copy_pieces(codec, dtype, pieces, begin, end, target, out, n_genes) -> np.ndarray:
    """A replacement for `kernel.copy_pieces` that decodes with libdeflate and c-blosc."""
    if codec == PLAIN:
        return _kernel_copies(codec, dtype, pieces, begin, end, target, out, n_genes)
    if not hasattr(_thread, "decompressor"):
        allocate = ctypes.CDLL(PATH).libdeflate_alloc_decompressor
        allocate.restype = ctypes.c_void_p
        _thread.decompressor = allocate()
    packed = kernel.scratch("packed", 2, int(pieces.size.max()))
    raw = kernel.scratch("raw", 2, int(pieces.wanted.max()) + LONGEST_MATCH)
    failed = np.zeros(len(pieces.start), bool)
    functions = C_FUNCTIONS[PLAIN], WHOLE, HEAD, C_FUNCTIONS[BLOSC], _thread.decompressor
    like = np.empty(0, dtype)
    _copy(codec == DEFLATE, functions, pieces, begin, end, target, packed, raw, like, out, n_genes, failed)
    return np.flatnonzero(failed)


@numba.njit(nogil=True)
def _copy(is_deflate, functions, pieces, begin, end, target, packed, raw, like, out, n_genes, failed):
    pread, whole, head, unpack, decompressor = functions
    packed, raw, out = borrowed(packed), borrowed(raw), borrowed(out)
    begin, end, target = borrowed(begin), borrowed(end), borrowed(target)
    chunk, result = np.int64(packed.ctypes.data), np.int64(raw.ctypes.data)
    for i in range(len(pieces.fd)):
        size, wanted = pieces.size[i], pieces.wanted[i]
        failed[i] = call(pread, (pieces.fd[i], chunk, size, pieces.place[i])) != size
        if failed[i]:
            continue
        if not is_deflate:
            failed[i] = not blosc.is_sound(chunk, size, wanted) or (
                np.int32(call(unpack, (chunk, result, wanted, np.int64(1)))) != wanted
            )
        elif wanted == pieces.whole[i]:
            failed[i] = np.int32(call(whole, (decompressor, chunk, size, result, wanted, np.int64(0)))) != 0
            if not failed[i]:
                store8(pieces.mark[i], 1)
        else:
            call(head, (decompressor, chunk + 2, size - 2, result, wanted + LONGEST_MATCH, np.int64(0)))
        if not failed[i]:
            failed[i] = not kernel.scatter_piece(pieces, i, raw[0], like, begin, end, target, out, n_genes)
