"""Decodes LZF chunks, as written by h5py's lzf filter. A chunk is a sequence of literals and matches.

The format is that of liblzf. A control byte c below 32 is followed by c + 1 literal bytes. Any other control byte
starts a match. Its upper 3 bits are the length minus 2; if they are 7, the next byte is added to the length. Its lower
5 bits are the high bits, and the byte after that holds the low 8 bits, of the distance minus 1.
"""

import numpy as np

from loadstone.codecs.compiled import compiled


@compiled
def _decode(packed, out):
    """Decodes `packed` into `out`, both uint8. Returns whether it decodes without error to exactly len(out) bytes."""
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
            for i in range(length):  # byte by byte, since a match may overlap its own output
                out[n + i] = out[source + i]
        n += length
    return n == len(out)


def decompress(packed: bytes, whole: int) -> np.ndarray:
    """The decoded bytes, uint8 (whole,). ValueError if `packed` is damaged or does not decode to `whole` bytes."""
    out = np.empty(whole, np.uint8)
    if not _decode(np.frombuffer(packed, np.uint8), out):
        raise ValueError(f"its {len(packed):,} bytes of LZF do not decode to {whole:,}")
    return out
