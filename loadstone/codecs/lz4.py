"""Decodes Blosc chunks that were compressed with LZ4. Two streams of a chunk are decoded alternately.

Blosc stores the first bytes of all values, then the second bytes of all values, and so on. For counts and indices this
gives many short matches. Each depends on the match before it, and one in four overlaps its own output within eight
bytes. The LZ4 library branches on such overlaps, and the branch is often mispredicted. Here one byte-shuffle
instruction handles overlaps, so that any match of up to 16 bytes is one load and one store. While one stream waits for
bytes that it has just stored, the other stream is decoded. Rare sequences, such as long ones and those near the end of
a stream, take a slower path. Measurements: docs/native.md.

The formats are the LZ4 block format and the chunk format of c-blosc 1. Chunks are given as addresses. Nothing is read
or written outside the chunk and the arrays `out` and `planes` of `decode`.
"""

import numpy as np

from loadstone.codecs.compiled import compiled, inlined
from loadstone.codecs.intrinsics import (
    copied,
    filled,
    load8,
    load16,
    load32,
    load64,
    repeated,
    store8,
    store64,
    unlikely,
)

DONE, BAD, UNKNOWN, GOES_ON, NEEDS_CARE = 0, 1, 2, 3, 4

# The header of a chunk: format version, LZ4 version, flags and bytes per element; then, in 32 bits each, the decoded
# size, the block size and the compressed size; then the offset of each block.
HEAD, VERSION, LZ4_VERSION = 16, 2, 1
SHUFFLED, NOT_SPLIT, FORMAT, LZ4 = 1, 16, 5, 1
LEAST_SPLIT = 128  # elements; in a block with at least this many, each byte plane is a separate stream

# Fields of a stream, all addresses: the next byte of input and its end; the next byte of output, its start and its end.
AT, END, TO, FIRST, LAST, FIELDS = 0, 1, 2, 3, 4, 5

# A sequence: a byte with two lengths, then literals, then the distance of a match in two bytes. If a length is MORE,
# further bytes are added to it.
MORE, LEAST_MATCH = 15, 4
MOST_LITERALS, MOST_MATCH = 8, 16  # of a sequence for the fast path
ROUNDS = 16  # sequences of each stream between two checks of the room left
# The most bytes that ROUNDS sequences read and write. The longest sequence reads and writes the most bytes: the bytes
# that a shorter sequence loads and stores beyond its end are included.
ROUNDS_IN = ROUNDS * (3 + MOST_LITERALS)
ROUNDS_OUT = ROUNDS * (MOST_LITERALS + MOST_MATCH)


@compiled
def decode(chunk, size, out, planes):
    """Decodes the Blosc chunk of `size` bytes at the address `chunk` into `out`, uint8.

    planes: scratch memory, uint8, at least as long as `out`. Returns DONE if the chunk filled `out` exactly, BAD if the
    chunk is damaged or has another decoded size, and UNKNOWN if it is not compressed with LZ4 in a supported way.
    """
    wanted = len(out)
    if size < HEAD or load8(chunk) != VERSION or load8(chunk + 1) != LZ4_VERSION:
        return UNKNOWN
    flags, width, block = load8(chunk + 2), load8(chunk + 3), load32(chunk + 8)
    if flags & ~(SHUFFLED | NOT_SPLIT) != LZ4 << FORMAT or width not in (1, 2, 4, 8) or block % width or wanted % width:
        return UNKNOWN
    if load32(chunk + 4) != wanted or load32(chunk + 12) != size or not block:
        return BAD
    n_blocks = -(-wanted // block)
    if HEAD + 4 * n_blocks > size:
        return BAD
    is_split = block >= LEAST_SPLIT * width and not flags & NOT_SPLIT
    is_shuffled = flags & SHUFFLED != 0 and width > 1
    to = np.int64((planes if is_shuffled else out).ctypes.data)
    # This size is limited for any header: at most one stream per 4 bytes of the chunk, or per LEAST_SPLIT of output.
    streams, n_streams = np.empty((n_blocks * (width if is_split else 1), FIELDS), np.int64), 0
    for i in range(n_blocks):
        n = min(block, wanted - i * block)
        splits = width if is_split and n == block else 1
        at = load32(chunk + HEAD + 4 * i)
        for _ in range(splits):
            if at + 4 > size:
                return BAD
            packed, plain = load32(chunk + at), n // splits
            at += 4
            if at + packed > size:
                return BAD
            if packed == plain:
                copied(chunk + at, to, plain)
            else:
                stream = streams[n_streams]
                stream[AT], stream[END] = chunk + at, chunk + at + packed
                stream[TO], stream[FIRST], stream[LAST] = to, to, to + plain
                n_streams += 1
            at += packed
            to += plain
    if not _decode_streams(streams[:n_streams]):
        return BAD
    if is_shuffled:
        for begin in range(0, wanted, block):
            part = slice(begin, min(begin + block, wanted))
            if width == 2:
                _unshuffle(planes[part], out[part].view(np.uint16))
            elif width == 4:
                _unshuffle(planes[part], out[part].view(np.uint32))
            else:
                _unshuffle(planes[part], out[part].view(np.uint64))
    return DONE


@compiled
def decode_each(packed, edges, out, planes):
    """Decodes each chunk packed[edges[i] : edges[i + 1]] into `out`, which the next chunk overwrites.

    Returns False at the first chunk that `decode` does not return DONE for, otherwise True.
    """
    for i in range(len(edges) - 1):
        if decode(packed.ctypes.data + edges[i], edges[i + 1] - edges[i], out, planes) != DONE:
            return False
    return True


@compiled
def _decode_streams(streams):
    """Decodes streams, two at a time. Returns False if a stream is damaged."""
    a, b, coming = 0, 1, 2
    while b < len(streams):
        status_a, status_b = _in_turn(streams[a], streams[b])
        if status_a == BAD or status_b == BAD:
            return False
        if status_a == DONE:
            a = b
        b, coming = coming, coming + 1
    return a >= len(streams) or _alone(streams[a])


@compiled
def _in_turn(a, b):
    """Decodes two streams alternately, until at least one is DONE or BAD. Returns the status of both."""
    at_a, to_a, status_a = a[AT], a[TO], GOES_ON
    at_b, to_b, status_b = b[AT], b[TO], GOES_ON
    while status_a == status_b == GOES_ON:
        while status_a == status_b == GOES_ON and _has_room(a, at_a, to_a) and _has_room(b, at_b, to_b):
            for _ in range(ROUNDS):
                at_a, to_a, status_a = _sequence(at_a, to_a, a[FIRST])
                if unlikely(status_a != GOES_ON):
                    break
                at_b, to_b, status_b = _sequence(at_b, to_b, b[FIRST])
                if unlikely(status_b != GOES_ON):
                    break
        if status_a == NEEDS_CARE or (status_b == GOES_ON and not _has_room(a, at_a, to_a)):
            at_a, to_a, status_a = _with_care(a, at_a, to_a)
        elif status_b == NEEDS_CARE or (status_a == GOES_ON and not _has_room(b, at_b, to_b)):
            at_b, to_b, status_b = _with_care(b, at_b, to_b)
    a[AT], a[TO], b[AT], b[TO] = at_a, to_a, at_b, to_b
    return status_a, status_b


@compiled
def _alone(a):
    """Decodes one stream to its end. Returns False if the stream is damaged."""
    at, to, status = a[AT], a[TO], GOES_ON
    while status == GOES_ON:
        while status == GOES_ON and _has_room(a, at, to):
            for _ in range(ROUNDS):
                at, to, status = _sequence(at, to, a[FIRST])
                if unlikely(status != GOES_ON):
                    break
        at, to, status = _with_care(a, at, to)
    return status == DONE


@inlined
def _has_room(stream, at, to):
    """Whether the next ROUNDS sequences of the fast path stay within the input and output of the stream."""
    return (at + ROUNDS_IN <= stream[END]) & (to + ROUNDS_OUT <= stream[LAST])


@inlined
def _sequence(at, to, first):
    """The fast path: decodes one sequence. Returns (next input address, next output address, status).

    The status is GOES_ON, or NEEDS_CARE for a rare or damaged sequence, which is then not decoded.
    """
    lengths, n = load8(at), 0
    if unlikely(lengths > MOST_MATCH - LEAST_MATCH):
        n = lengths >> 4
        lengths &= 15
        if (n > MOST_LITERALS) | (lengths > MOST_MATCH - LEAST_MATCH):
            return at, to, NEEDS_CARE
        store64(to, load64(at + 1))
        at, to = at + n, to + n
    distance = load16(at + 1)
    if unlikely((to - distance < first) | (distance == 0)):
        return at - n, to - n, NEEDS_CARE
    repeated(to, distance)
    return at + 3, to + lengths + LEAST_MATCH, GOES_ON


@compiled
def _with_care(stream, at, to):
    """The slow path: decodes any sequence, with all checks. Returns the same as `_sequence`.

    The status is GOES_ON, BAD, or DONE after the last sequence of a stream, which has no match.
    """
    end, first, last = stream[END], stream[FIRST], stream[LAST]
    if at >= end:
        return at, to, BAD
    lengths = load8(at)
    at, n = _length(at + 1, end, lengths >> 4)
    if n > min(end - at, last - to):
        return at, to, BAD
    copied(at, to, n)
    at, to = at + n, to + n
    if at == end:
        return at, to, DONE if to == last else BAD
    if at + 2 > end:
        return at, to, BAD
    distance = load16(at)
    at, n = _length(at + 2, end, lengths & 15)
    n += LEAST_MATCH
    if distance == 0 or to - distance < first or n > last - to:
        return at, to, BAD
    if distance == 1:
        filled(to, n, load8(to - 1))
        return at, to + n, GOES_ON
    k = 0
    while k < n and to + k + 16 <= last:
        repeated(to + k, distance)
        k += 16
    while k < n:
        store8(to + k, load8(to + k - distance))
        k += 1
    return at, to + n, GOES_ON


@compiled
def _length(at, end, n):
    """Returns (the address after the length, the length). n: the first four bits; MORE means that bytes are added."""
    if n == MORE:
        more = 255
        while more == 255 and at < end:
            more = load8(at)
            at, n = at + 1, n + more
    return at, n


@compiled
def _unshuffle(planes, elements):
    """Joins the bytes of each element. `planes` holds the lowest byte of every element, then every second byte, etc."""
    n, word = np.uint64(len(elements)), elements.dtype.type
    if elements.itemsize == 2:
        low, high = planes[:n], planes[n:]
        for i in range(n):
            elements[i] = word(low[i]) | word(high[i]) << word(8)
        return
    for k in range(0, elements.itemsize, 4):
        a, b, c, d = planes[k * n :], planes[(k + 1) * n :], planes[(k + 2) * n :], planes[(k + 3) * n :]
        for i in range(n):
            four = word(a[i]) | word(b[i]) << word(8) | word(c[i]) << word(16) | word(d[i]) << word(24)
            elements[i] = four if k == 0 else elements[i] | four << word(8 * k)
