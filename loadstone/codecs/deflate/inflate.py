"""Inflates three zlib streams alternately, so that the table lookups of one hide the latency of the others.

In compressed gene indices, literals and matches of three or four bytes alternate irregularly. A branch on which of
them comes next would often be mispredicted, and a misprediction costs more than decoding the symbol. So there is no
such branch: a round decodes up to two literals and a match, and an absent literal consumes no bits and produces no
bytes. The first 16 bytes of a match are copied at once, or the first 32 if most matches are long, as in values. What a
round cannot decode (codes too long for the lookup table, the end of a block) takes a slower path, one symbol at a
time. Decoding the first n bytes of a stream takes their share of its time. Measurements: docs/native.md.

The format is that of RFC 1950 and 1951. `begin` assigns a stream to a slot, `rest` leaves a slot idle, and `run`
inflates until one slot is done. Streams and results are given as addresses. Up to IN_SLACK bytes behind a stream are
read, and up to OUT_SLACK bytes behind a result are written. Checksums are not verified here.
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
# The slack: how many bytes are read behind a stream at most, and written behind a result, whatever the stream says.
# Nothing is touched before them. `run` goes on only if no slot is beyond the end of its stream or of its result. Then
# come ROUNDS at most; each but the last takes ROUND_BITS at most and gives ROUND_BYTES, two literals and a match.
# Bits from the end of a stream to the last load:
#   the last round    (ROUNDS - 1) * ROUND_BITS.
#   `_symbol`         The most, where the last round needs care: two literals more, then NEXT_MATCH_BITS.
#   `_block`          It looks first: none; 3 + 7 to the length of a stored block, whose bytes end within the stream.
#   `read_codes`      3 + READ_CODES_BITS, as `_block` has looked.
#   `begin`, `rest`   None: `begin` loads two single bytes, and a slot that rests a word, always the same.
# Bytes from the end of a result to the last that is written:
#   the last round    The most: (ROUNDS - 1) * ROUND_BYTES, two literals, and a match of 258 in steps of 32 bytes.
#   `_symbol`         As many before it, and a match of 258 in steps of one byte.
#   `_block`          None: a stored block is not longer than the room for it.
#   a slot that rests A byte where it rests.
ROUND_BYTES, LAST_MATCH = 2 + 258, 288
LAST_ROUND = (ROUNDS - 1) * ROUND_BITS + 2 * INDEX_BITS + NEXT_MATCH_BITS
IN_SLACK = max(LAST_ROUND, 3 + READ_CODES_BITS) // 8 + WORD
OUT_SLACK = (ROUNDS - 1) * ROUND_BYTES + 2 + LAST_MATCH
GOES_ON, DONE, BAD = 0, 1, 2

# Fields of a slot, in its row of `state`: the bit address of the next bit, and of the end of the stream; the addresses
# of the next byte of output, of its start and of its end as far as it is needed; whether the stream may hold more than
# that, whether its matches are mostly long, and whether the block is the last.
POSITION, STOP, OUT, FIRST, LAST, IS_HEAD, IS_WIDE, IS_FINAL, FIELDS = 0, 1, 2, 3, 4, 5, 6, 7, 8
PACKS_WELL = 4  # streams compressed by more than this factor have mostly long matches
NEVER = np.iinfo(np.int64).max


def memory() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The working memory of `begin` and `run`: the state, codes and books of all slots."""
    return np.zeros((SLOTS, FIELDS), np.int64), np.zeros(SLOTS * TABLES, np.int32), np.zeros((SLOTS, 2, BOOK), np.int32)


@compiled
def begin(state, codes, books, slot, stream, n, out, wanted, is_head):
    """Assigns to a slot the `n` bytes at the address `stream`, to be inflated to `out`. False if they are damaged."""
    state[slot, POSITION], state[slot, STOP] = 8 * stream + 16, 8 * (stream + n)
    state[slot, FIRST] = state[slot, OUT] = out
    state[slot, LAST], state[slot, IS_HEAD] = out + wanted, is_head
    state[slot, IS_WIDE] = PACKS_WELL * n < wanted
    method, flags = load8(stream), load8(stream + 1)
    if method & 0x8F != 8 or flags & 32 or (256 * method + flags) % 31:
        return False  # not DEFLATE, a window above 32 KiB, a preset dictionary, or a wrong header checksum
    status = _block(state, codes, books, slot)
    if status == DONE:
        state[slot, IS_HEAD] = True  # nothing is left to do, as for a head that is complete
    return status != BAD


@compiled
def rest(state, codes, slot, scratch):
    """Leaves a slot idle: it keeps reading 8 bytes and writing one byte at `scratch`."""
    state[slot, POSITION], state[slot, OUT], state[slot, FIRST] = 8 * scratch, scratch, scratch
    state[slot, STOP] = state[slot, LAST] = NEVER
    codes[slot * TABLES : (slot + 1) * TABLES] = NOTHING


@compiled
def run(state, codes, books):
    """Inflates until one of the slots is DONE or BAD. Returns the slot and which of the two."""
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
    """Runs rounds. Returns the first slot that needs the slow path, or -1 when a slot may be at its end."""
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
    """Decodes up to two literals."""
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
    """Decodes a match, unless a literal follows or the slow path is needed. wide: copies 32 bytes at once, not 16."""
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
    """The slow path: decodes any one literal, match or end of a block."""
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
    """Copies stored blocks, and prepares the next compressed one. DONE if the output is complete."""
    tables = codes[slot * TABLES : (slot + 1) * TABLES]
    while state[slot, POSITION] <= state[slot, STOP]:
        if state[slot, IS_HEAD] and state[slot, OUT] >= state[slot, LAST]:
            return DONE  # rounds may write more than needed; a stored block would have a negative amount of room
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
        n = min(n, room)  # not negative: a whole stream has room for n, and a head that needs no more returned above
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
    """zlib streams in memory, and room for the output of SLOTS of them."""

    packed: np.ndarray
    places: np.ndarray
    sizes: np.ndarray
    room: np.ndarray


def hold(streams: Sequence[bytes], wanted: int) -> Streams:
    """The streams for `inflate_each`. wanted: decoded bytes of each."""
    sizes = np.array([len(stream) for stream in streams])
    packed = np.frombuffer(b"".join([*streams, bytes(IN_SLACK)]), np.uint8)
    return Streams(packed, np.cumsum([0, *sizes[:-1]]), sizes, np.empty((SLOTS, wanted + OUT_SLACK), np.uint8))


@compiled
def inflate_each(streams, state, codes, books, wanted, is_head, results):
    """Inflates the streams into the rows of `results`, if it has any. Returns the index of a damaged one, or -1."""
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
