"""LZF, as h5py's filter of that name writes it: a chunk is a run of literal bytes and copies of what came before.

The format is that of liblzf: a control byte below 32 is followed by one byte more than it says; any other holds, from
its highest bit down, 3 bits of a copy's length less 2 (7: a byte follows, and is added) and 5 bits of its distance
less 1, of which a last byte holds the lower 8.
"""

import numpy as np

from loadstone.codecs.compiled import compiled


@compiled
def _decode(packed, out):
    """Whether `packed` decodes to as many bytes as `out` has."""
    at, n = 0, 0
    while at < len(packed):
        control = np.int64(packed[at])
        at += 1
        if control < 32:
            length = control + 1
            if at + length > len(packed) or n + length > len(out):
                return False
            out[n : n + length] = packed[at : at + length]
            at += length
        else:
            length = control >> 5
            if length == 7 and at < len(packed):
                length += packed[at]
                at += 1
            length += 2
            if at >= len(packed):
                return False
            source = n - ((control & 31) << 8) - packed[at] - 1
            at += 1
            if source < 0 or n + length > len(out):
                return False
            for i in range(length):  # one by one: it may repeat bytes that it has just written
                out[n + i] = out[source + i]
        n += length
    return n == len(out)


def decompress(packed: bytes, whole: int) -> np.ndarray:
    """(whole,) uint8; ValueError where the bytes are damaged, or decode to another length."""
    out = np.empty(whole, np.uint8)
    if not _decode(np.frombuffer(packed, np.uint8), out):
        raise ValueError(f"its {len(packed):,} bytes of LZF do not decode to {whole:,}")
    return out
