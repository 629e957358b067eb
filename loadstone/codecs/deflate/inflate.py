"""Inflates three zlib streams alternately. While the table lookup of one stream waits for memory, the others proceed.

In compressed gene indices, literals and matches of three or four bytes alternate irregularly. A branch on the kind of
the next symbol would often be mispredicted, and a misprediction costs more than decoding the symbol. So there is no
such branch: a round decodes up to two literals and a match, and an absent literal consumes no bits and produces no
bytes. The first 16 bytes of a match are copied at once, or the first 32 if most matches are long, as in values. A code
too long for the lookup table and the end of a block take a slower path, one symbol at a time. The time to decode the
first n bytes of a stream is proportional to n. Measurements: docs/native.md.

The formats are RFC 1950 (zlib) and RFC 1951 (DEFLATE). Each of the three streams has a slot. `begin` assigns a stream
to a slot, `rest` leaves a slot idle, and `run` inflates until one slot is done. Streams and results are given as
addresses. Up to IN_SLACK bytes after the end of a stream are read, and up to OUT_SLACK bytes after the end of a result
are written. Checksums are not verified here.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from loadstone.codecs.compiled import compiled, inlined
from loadstone.codecs.deflate.huffman import (
    BASE,
    BOOK,
    DISTANCE,
    END_OF_BLOCK,
    INDEX_BITS,
    LITERAL,
    MASK,
    MATCH,
    N_LITERALS,
    NEEDS_CARE,
    NEXT_MATCH_BITS,
    NOTHING,
    READ_CODES_BITS,
    ROUND_BITS,
    TABLES,
    fixed_codes,
    next_match,
    next_symbol,
    read_codes,
)
from loadstone.codecs.intrinsics import bits_at, borrowed, load8, repeated, shifted, store8, unlikely

SLOTS = 3
ROUNDS = 64  # between two checks for the ends of streams and results
WORD = 8  # bytes of a load; the first one holds the next bit
# The slack: the most bytes that are read after the end of a stream, and written after the end of a result, for any
# stream, valid or not. No byte before a stream or a result is read or written. `run` starts rounds only if no slot is
# beyond the end of its stream or of its result. At most ROUNDS rounds follow. Each round but the last consumes at most
# ROUND_BITS and produces at most ROUND_BYTES, two literals and a match.
# Bits from the end of a stream to the last load, at most:
#   the last round    (ROUNDS - 1) * ROUND_BITS.
#   `_symbol`         If the last round takes the slow path: two literals more, then NEXT_MATCH_BITS. The largest value.
#   `_block`          0, because it first checks the position. 3 + 7 up to the length of a stored block, whose bytes are
#                     checked to be within the stream.
#   `read_codes`      3 + READ_CODES_BITS, because `_block` has checked the position.
#   `begin`, `rest`   0: `begin` loads two single bytes, and an idle slot always loads the same word.
# Bytes from the end of a result to the last byte written, at most:
#   the last round    (ROUNDS - 1) * ROUND_BYTES, two literals, and a match of 258 in steps of 32. The largest value.
#   `_symbol`         The same number before it, and a match of 258 in steps of one byte.
#   `_block`          0: a stored block is not longer than the room for it.
#   an idle slot      One byte, always at the same address.
ROUND_BYTES, LAST_MATCH = 2 + 258, 288
LAST_ROUND = (ROUNDS - 1) * ROUND_BITS + 2 * INDEX_BITS + NEXT_MATCH_BITS
IN_SLACK = max(LAST_ROUND, 3 + READ_CODES_BITS) // 8 + WORD
OUT_SLACK = (ROUNDS - 1) * ROUND_BYTES + 2 + LAST_MATCH
GOES_ON, DONE, BAD = 0, 1, 2

# Fields of a slot, in its row of `state`. POSITION, STOP: the bit addresses of the next bit and of the end of the
# stream. OUT, FIRST, LAST: the addresses of the next byte of output, of its start, and of the end of the needed output.
# IS_HEAD: whether the stream may decode to more bytes than needed. IS_WIDE: whether its matches are mostly long.
# IS_FINAL: whether the current block is the last one.
POSITION, STOP, OUT, FIRST, LAST, IS_HEAD, IS_WIDE, IS_FINAL, FIELDS = 0, 1, 2, 3, 4, 5, 6, 7, 8
PACKS_WELL = 4  # streams compressed by more than this factor have mostly long matches
NEVER = np.iinfo(np.int64).max


def memory() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The working memory of all slots: (state, codes, books), the first arguments of `begin` and `run`."""
    return np.zeros((SLOTS, FIELDS), np.int64), np.zeros(SLOTS * TABLES, np.int32), np.zeros((SLOTS, 2, BOOK), np.int32)


@compiled
def begin(state, codes, books, slot, stream, n, out, wanted, is_head):
    """Assigns the zlib stream of `n` bytes at the address `stream` to a slot. False if its start is damaged.

    out: the address of the result. wanted: the number of decoded bytes needed. is_head: whether the stream may decode
    to more bytes; if false, a stream that does not decode to exactly `wanted` bytes is BAD.
    """
    state[slot, POSITION], state[slot, STOP] = 8 * stream + 16, 8 * (stream + n)
    state[slot, FIRST] = state[slot, OUT] = out
    state[slot, LAST], state[slot, IS_HEAD] = out + wanted, is_head
    state[slot, IS_WIDE] = PACKS_WELL * n < wanted
    method, flags = load8(stream), load8(stream + 1)
    if method & 0x8F != 8 or flags & 32 or (256 * method + flags) % 31:
        return False  # not DEFLATE, a window above 32 KiB, a preset dictionary, or a wrong header checksum
    status = _block(state, codes, books, slot)
    if status == DONE:
        state[slot, IS_HEAD] = True  # the output is complete, so that `run` returns DONE for this slot
    return status != BAD


@compiled
def rest(state, codes, slot, scratch):
    """Leaves a slot idle. Its rounds only read 8 bytes and write one byte at the address `scratch`."""
    state[slot, POSITION], state[slot, OUT], state[slot, FIRST] = 8 * scratch, scratch, scratch
    state[slot, STOP] = state[slot, LAST] = NEVER
    codes[slot * TABLES : (slot + 1) * TABLES] = NOTHING


@compiled
def run(state, codes, books):
    """Inflates until the stream of one slot is DONE or BAD. Returns (slot, DONE or BAD)."""
    while True:
        for slot in range(SLOTS):
            over = state[slot, OUT] - state[slot, LAST]
            if state[slot, POSITION] > state[slot, STOP] or (over > 0 and not state[slot, IS_HEAD]):
                return slot, BAD
            if over >= 0 and state[slot, IS_HEAD]:
                return slot, DONE
        needy = _rounds(state, codes)
        if needy >= 0:
            status = _symbol(state, codes, books, needy)
            if status == BAD:
                return needy, BAD
            if status == DONE:
                over = state[needy, OUT] - state[needy, LAST]
                fits = over == 0 or (over > 0 and state[needy, IS_HEAD])
                return needy, DONE if fits and state[needy, POSITION] <= state[needy, STOP] else BAD


@compiled
def _rounds(state, codes):
    """Runs rounds. Returns the slot that needs the slow path, or -1 if a slot is past the end of stream or result."""
    stop0, out0, first0, last0 = state[0, STOP], state[0, OUT], state[0, FIRST], state[0, LAST]
    stop1, out1, first1, last1 = state[1, STOP], state[1, OUT], state[1, FIRST], state[1, LAST]
    stop2, out2, first2, last2 = state[2, STOP], state[2, OUT], state[2, FIRST], state[2, LAST]
    at0, at1, at2 = state[0, POSITION], state[1, POSITION], state[2, POSITION]
    wide0, wide1, wide2 = state[0, IS_WIDE] != 0, state[1, IS_WIDE] != 0, state[2, IS_WIDE] != 0
    needy = -1
    while needy < 0 and (
        at0 <= stop0 and at1 <= stop1 and at2 <= stop2 and out0 <= last0 and out1 <= last1 and out2 <= last2
    ):
        for _ in range(ROUNDS):
            at0, bits0, out0 = _literals(codes, 0, at0, out0)
            at1, bits1, out1 = _literals(codes, TABLES, at1, out1)
            at2, bits2, out2 = _literals(codes, 2 * TABLES, at2, out2)
            at0, out0, care = _match(codes, 0, at0, bits0, out0, first0, wide0)
            if unlikely(care != 0):
                needy = 0
                break
            at1, out1, care = _match(codes, TABLES, at1, bits1, out1, first1, wide1)
            if unlikely(care != 0):
                needy = 1
                break
            at2, out2, care = _match(codes, 2 * TABLES, at2, bits2, out2, first2, wide2)
            if unlikely(care != 0):
                needy = 2
                break
    state[0, POSITION], state[0, OUT] = at0, out0
    state[1, POSITION], state[1, OUT] = at1, out1
    state[2, POSITION], state[2, OUT] = at2, out2
    return needy


@inlined
def _literals(codes, tables, at, out):
    """Decodes up to two literals. Returns (next bit address, the bits from there on, next output address)."""
    bits = bits_at(at)
    literal = np.int64(codes[tables + LITERAL + 2 * (bits & MASK)])
    store8(out, literal >> 8)
    bits = shifted(bits, literal & 63)
    second = np.int64(codes[tables + LITERAL + 2 * (bits & MASK)])
    store8(out + (literal >> 24), second >> 8)
    literal += second
    return at + (literal & 255), shifted(bits, second & 63), out + (literal >> 24)


@inlined
def _match(codes, tables, at, bits, out, first, wide):
    """Decodes a match, unless the next symbol is a literal or needs the slow path.

    wide: copies 32 bytes at once, otherwise 16. Returns (next bit address, next output address, status). The status is
    NEEDS_CARE if the slow path is needed, otherwise 0.
    """
    match = np.int64(codes[tables + MATCH + 2 * (bits & MASK)])
    if unlikely(match <= NEEDS_CARE):
        return at, out, match
    behind = shifted(bits, match & 63)
    far = np.int64(codes[tables + DISTANCE + (behind & MASK)])
    distance = (far >> BASE) + shifted(behind & ((1 << (far & 63)) - 1), far >> 8 & 63)
    if unlikely((far == NOTHING) | (out - distance < first)):
        return at, out, NEEDS_CARE
    length = (match >> BASE) + shifted(bits & ((1 << (match & 63)) - 1), match >> 8 & 63)
    repeated(out, distance)
    if wide:
        repeated(out + 16, distance)
        if unlikely(length > 32):
            for k in range(32, length, 32):
                repeated(out + k, distance)
                repeated(out + k + 16, distance)
    elif unlikely(length > 16):
        for k in range(16, length, 16):
            repeated(out + k, distance)
    return at + (match & 255) + (far & 255), out + length, 0


@compiled
def _symbol(state, codes, books, slot):
    """The slow path: decodes one literal, match or end of a block. Returns GOES_ON, DONE or BAD."""
    out, position = state[slot, OUT], state[slot, POSITION]
    symbol, n = next_symbol(bits_at(position), books[slot, 0])
    position += n
    if 0 <= symbol < N_LITERALS:
        store8(out, symbol)
        state[slot, OUT], state[slot, POSITION] = out + 1, position
        return GOES_ON
    if symbol == END_OF_BLOCK:
        state[slot, POSITION] = position
        return DONE if state[slot, IS_FINAL] else _block(state, codes, books, slot)
    position, length, distance = next_match(position, symbol, books[slot, 1])
    if position < 0 or out - distance < state[slot, FIRST]:
        return BAD
    for k in range(length):
        store8(out + k, load8(out + k - distance))
    state[slot, OUT], state[slot, POSITION] = out + length, position
    return GOES_ON


@compiled
def _block(state, codes, books, slot):
    """Copies stored blocks up to the next compressed block, and reads the codes of this block.

    Returns GOES_ON, DONE if the output is complete, or BAD.
    """
    tables = codes[slot * TABLES : (slot + 1) * TABLES]
    while state[slot, POSITION] <= state[slot, STOP]:
        if state[slot, IS_HEAD] and state[slot, OUT] >= state[slot, LAST]:
            return DONE  # rounds may write more than needed, and `room` below would be negative
        bits = bits_at(state[slot, POSITION])
        state[slot, IS_FINAL], kind = bits & 1, bits >> 1 & 3
        state[slot, POSITION] += 3
        if kind == 3:
            return BAD
        if kind == 2:
            state[slot, POSITION] = read_codes(state[slot, POSITION], tables, books[slot])
            return BAD if state[slot, POSITION] < 0 else GOES_ON
        if kind == 1:
            return GOES_ON if fixed_codes(tables, books[slot]) else BAD
        stream, out, room = (state[slot, POSITION] + 7) >> 3, state[slot, OUT], state[slot, LAST] - state[slot, OUT]
        bits = bits_at(8 * stream)
        n, complement = bits & 0xFFFF, bits >> 16 & 0xFFFF
        if n ^ complement != 0xFFFF or (n > room and not state[slot, IS_HEAD]):
            return BAD
        n = min(n, room)  # not negative: else BAD was returned (not IS_HEAD), or DONE above (IS_HEAD)
        stream += 4
        if 8 * (stream + n) > state[slot, STOP]:
            return BAD
        for k in range(n):
            store8(out + k, load8(stream + k))
        state[slot, OUT] += n
        state[slot, POSITION] = 8 * (stream + n)
        if state[slot, OUT] == state[slot, LAST] and (state[slot, IS_HEAD] or state[slot, IS_FINAL]):
            return DONE
        if state[slot, IS_FINAL]:
            return BAD
    return BAD


class Streams(NamedTuple):
    """zlib streams in memory, and room for the output of one stream per slot.

    packed: the streams one after another, then IN_SLACK bytes, uint8. places, sizes: the offset and length of each
    stream in packed, in bytes. room: uint8 (SLOTS, bytes).
    """

    packed: np.ndarray
    places: np.ndarray
    sizes: np.ndarray
    room: np.ndarray


def hold(streams: Sequence[bytes], wanted: int) -> Streams:
    """Prepares streams for `inflate_each`. wanted: the number of decoded bytes that are needed of each stream."""
    sizes = np.array([len(stream) for stream in streams])
    packed = np.frombuffer(b"".join([*streams, bytes(IN_SLACK)]), np.uint8)
    return Streams(packed, np.cumsum([0, *sizes[:-1]]), sizes, np.empty((SLOTS, wanted + OUT_SLACK), np.uint8))


@compiled
def inflate_each(streams, state, codes, books, wanted, is_head, results):
    """Inflates all streams. Returns the index of the first damaged stream found, or -1.

    results: uint8 (streams, wanted), receives the output; with no rows, the output is discarded. The other arguments:
    see `begin` and `memory`.
    """
    packed, places, sizes, room = streams
    state, codes, books = borrowed(state), borrowed(codes), borrowed(books)
    held, coming = np.full(SLOTS, -1), 0
    while True:
        for slot in range(SLOTS):
            stream, out = packed.ctypes.data, room[slot].ctypes.data
            if coming < len(places):
                if held[slot] < 0:
                    held[slot], coming = coming, coming + 1
                    at = stream + places[held[slot]]
                    if not begin(state, codes, books, slot, at, sizes[held[slot]], out, wanted, is_head):
                        return held[slot]
            elif held[slot] < 0:
                rest(state, codes, slot, out)
        if (held < 0).all():
            return -1
        slot, status = run(state, codes, books)
        if status == BAD:
            return held[slot]
        if len(results):
            results[held[slot]] = room[slot, :wanted]
        held[slot] = -1
