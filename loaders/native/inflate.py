"""Inflates two zlib streams in turn, so that the look-ups of one fill the waits of the other.

Where the indices of genes are compressed, matches of three or four bytes and single bytes follow each other as it
comes. No processor foretells which is next, and to have guessed wrong takes it longer than to decode what it was. So
nothing is guessed: a round decodes up to two literals and a match, and a literal that is not there has no bits and no
bytes. What a round cannot do (codes too long for a table, the end of a block) is done with care, a symbol at a time.
Any number of a stream's first bytes can be had for their share of its time. Measurements: docs/native.md.

The format is that of RFC 1950 and 1951. `begin` gives a stream to one of two slots, `rest` leaves a slot without one,
`run` inflates until one slot is done. Streams and results are addresses, and what lies behind them is read and written,
as far as IN_SLACK and OUT_SLACK say. Checksums are not looked at.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

SLOTS = 3
ROUNDS = 64  # between two looks at where the streams are
IN_SLACK, OUT_SLACK = 2_048, ROUNDS * 260 + 258  # bytes behind a stream and a result: what that may go too far
GOES_ON, DONE, BAD = 0, 1, 2

# Of a slot, in its row of `state`: the bit in memory that is next and the one where the stream ends; where the next
# byte goes, where the first went and where the last that is wanted ends; whether more than that may come, and whether
# the block is the last.
POSITION, STOP, OUT, FIRST, LAST, IS_HEAD, IS_FINAL, FIELDS = 0, 1, 2, 3, 4, 5, 6, 7
NEVER = np.iinfo(np.int64).max

INDEX_BITS = 10
SIZE, MASK = 1 << INDEX_BITS, (1 << INDEX_BITS) - 1
# Two tables of a slot's codes, one after another: what the next bits are as a literal and, beside it, as a length; and
# what they are as a distance. An entry's lowest byte is the bits that it takes. The next is the bits of the code alone,
# without those of a number that follows it; of a literal, the literal, and the highest byte is 1.
LITERAL, MATCH, DISTANCE, TABLES = 0, 1, 2 * SIZE, 3 * SIZE
REVERSED = np.array([int(f"{i:0{INDEX_BITS}b}"[::-1], 2) for i in range(SIZE)])  # a code's first bit is the lowest
BASE = 16  # the bit at which a length or distance begins, to which the number that follows is added
NOTHING, NEEDS_CARE = 0, 1  # entries of no code: of another kind of symbol, of a longer code or the end of a block
LENGTHS_AT_ONCE = 4  # of those that 14 bits hold at most, which are loaded at once
ROUND_BITS = 56  # of what is loaded at once, which all codes of a round must fit

MAX_CODE, N_LITERALS, END_OF_BLOCK, N_DISTANCES = 15, 256, 256, 30
# Of a slot's code, by their lengths: the end of the codes up to each length, as the first MAX_CODE bits of a stream; what a
# code of the length is added to be the place of its symbol; and the symbols in the order of their codes.
LIMIT, DELTA, SYMBOLS, BOOK = 0, MAX_CODE + 1, 2 * (MAX_CODE + 1), 2 * (MAX_CODE + 1) + 288
LENGTH_BASE = np.array(
    [3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 15, 17, 19, 23, 27, 31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258]
)
LENGTH_EXTRA = np.array([0] * 8 + [1] * 4 + [2] * 4 + [3] * 4 + [4] * 4 + [5] * 4 + [0])
DISTANCE_EXTRA = np.array([0, 0, 0, 0, *(extra for extra in range(1, 14) for _ in range(2))])
DISTANCE_BASE = np.cumsum([1, *(1 << DISTANCE_EXTRA[:-1])])
REPEAT_BASE, REPEAT_EXTRA = np.array([3, 3, 11]), np.array([2, 3, 7])
CODE_ORDER = np.array([16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15])


def _entries(*parts: tuple[np.ndarray | list[int], int]) -> np.ndarray:
    """Of each symbol: its entry but for the length of its code, and what that is multiplied by and added."""
    return np.concatenate([np.stack(np.broadcast_arrays(entry, times), axis=1) for entry, times in parts])


NUMBERED = 0x101  # the length of a code goes into both of the lowest bytes
BESIDE = 1 << 32  # what makes an entry of LITERAL one of MATCH
SYMBOL_ENTRIES = _entries(
    (1 << 24 | np.arange(N_LITERALS) << 8, 1),
    ([NEEDS_CARE * BESIDE], 0),
    ((LENGTH_BASE << BASE | LENGTH_EXTRA) * BESIDE, NUMBERED * BESIDE),
    ([NEEDS_CARE * BESIDE] * 2, 0),
)
# Distances of less than the 4 bytes that are copied at a time need care.
DISTANCE_ENTRIES = _entries(
    ([NOTHING] * 3, 0), ((DISTANCE_BASE << BASE | DISTANCE_EXTRA)[3:], NUMBERED), ([NOTHING] * 2, 0)
)
CODE_ENTRIES = _entries((np.arange(19) << 8, 1))


def memory() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What `begin` and `run` need: state, codes and books of both slots."""
    return np.zeros((SLOTS, FIELDS), np.int64), np.zeros(SLOTS * TABLES, np.int32), np.zeros((SLOTS, 2, BOOK), np.int32)


def _load(bits: int):
    @intrinsic
    def load(typing_context, address):
        def generate(context, builder, signature, values):
            loaded = builder.load(builder.inttoptr(values[0], ir.IntType(bits).as_pointer()), align=1)
            return loaded if bits == 64 else builder.zext(loaded, ir.IntType(64))

        return types.int64(types.int64), generate

    return load


def _store(bits: int):
    @intrinsic
    def store(typing_context, address, value):
        def generate(context, builder, signature, values):
            pointer = builder.inttoptr(values[0], ir.IntType(bits).as_pointer())
            value = values[1] if bits == 64 else builder.trunc(values[1], ir.IntType(bits))
            builder.store(value, pointer, align=1)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), generate

    return store


@intrinsic
def shifted(typing_context, bits, n):
    """A word's bits moved down by n, less than 64, with zeros behind them."""

    def generate(context, builder, signature, values):
        return builder.lshr(*values)

    return types.int64(types.int64, types.int64), generate


@intrinsic
def borrowed(typing_context, array):
    """The array without its reference count: two threads, or two functions, that count wait for each other's stores."""

    def generate(context, builder, signature, values):
        made = context.make_array(array)(context, builder, values[0])
        made.meminfo = cgutils.get_null_value(made.meminfo.type)
        made.parent = cgutils.get_null_value(made.parent.type)
        return made._getvalue()

    return array(array), generate


@intrinsic
def reversed_bits(typing_context, bits):
    """A word's bits in the opposite order."""

    def generate(context, builder, signature, values):
        return builder.bitreverse(*values)

    return types.int64(types.int64), generate


@intrinsic
def unlikely(typing_context, condition):
    """The condition, of which the compiler is told that it is hardly ever true."""

    def generate(context, builder, signature, values):
        bit = ir.IntType(1)
        expect = cgutils.get_or_insert_function(builder.module, ir.FunctionType(bit, [bit, bit]), "llvm.expect.i1")
        return builder.call(expect, [values[0], bit(0)])

    return types.boolean(types.boolean), generate


load8, load32, load64 = _load(8), _load(32), _load(64)
store8, store32, store64 = _store(8), _store(32), _store(64)


@numba.njit(nogil=True, cache=True)
def begin(state, codes, books, slot, stream, n, out, wanted, is_head):
    """Gives a slot the `n` bytes at the address `stream`, to be inflated to `out`; False if they are damaged."""
    state[slot, POSITION], state[slot, STOP] = 8 * stream + 16, 8 * (stream + n)
    state[slot, FIRST] = state[slot, OUT] = out
    state[slot, LAST], state[slot, IS_HEAD] = out + wanted, is_head
    method, flags = load8(stream), load8(stream + 1)
    if method & 15 != 8 or flags & 32 or (256 * method + flags) % 31:
        return False
    status = _block(state, codes, books, slot)
    if status == DONE:
        state[slot, IS_HEAD] = True  # nothing is left to do, as where more of a head was inflated than is wanted
    return status != BAD


@numba.njit(nogil=True, cache=True)
def rest(state, codes, slot, scratch):
    """Makes a slot do nothing beside the other; it goes on reading and writing at the address `scratch`."""
    state[slot, POSITION], state[slot, OUT], state[slot, FIRST] = 8 * scratch, scratch, scratch
    state[slot, STOP] = state[slot, LAST] = NEVER
    codes[slot * TABLES : (slot + 1) * TABLES] = NOTHING


@numba.njit(nogil=True, cache=True)
def run(state, codes, books):
    """Inflates until one of the slots is DONE or BAD: (slot, which of them)."""
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
                fits = state[needy, POSITION] <= state[needy, STOP] and (
                    over == 0 or (over > 0 and state[needy, IS_HEAD])
                )
                return needy, DONE if fits else BAD


@numba.njit(nogil=True, cache=True)
def _rounds(state, codes):
    """Rounds of all slots: to the first that needs care, which is returned, or until one may be at its end: -1."""
    stop0, out0, first0, last0 = state[0, STOP], state[0, OUT], state[0, FIRST], state[0, LAST]
    stop1, out1, first1, last1 = state[1, STOP], state[1, OUT], state[1, FIRST], state[1, LAST]
    stop2, out2, first2, last2 = state[2, STOP], state[2, OUT], state[2, FIRST], state[2, LAST]
    ahead0, bits0, n0 = _loaded(state[0, POSITION])
    ahead1, bits1, n1 = _loaded(state[1, POSITION])
    ahead2, bits2, n2 = _loaded(state[2, POSITION])
    needy = -1
    while needy < 0 and (
        ahead0 <= (stop0 >> 3) + 8
        and ahead1 <= (stop1 >> 3) + 8
        and ahead2 <= (stop2 >> 3) + 8
        and out0 <= last0
        and out1 <= last1
        and out2 <= last2
    ):
        for _ in range(ROUNDS):
            ahead0, bits0, n0, out0 = _literals(codes, 0, ahead0, bits0, n0, out0)
            ahead1, bits1, n1, out1 = _literals(codes, TABLES, ahead1, bits1, n1, out1)
            ahead2, bits2, n2, out2 = _literals(codes, 2 * TABLES, ahead2, bits2, n2, out2)
            bits0, n0, out0, care = _match(codes, 0, bits0, n0, out0, first0)
            if unlikely(care != 0):
                needy = 0
                break
            bits1, n1, out1, care = _match(codes, TABLES, bits1, n1, out1, first1)
            if unlikely(care != 0):
                needy = 1
                break
            bits2, n2, out2, care = _match(codes, 2 * TABLES, bits2, n2, out2, first2)
            if unlikely(care != 0):
                needy = 2
                break
    state[0, POSITION], state[0, OUT] = 8 * ahead0 - (n0 & 63), out0
    state[1, POSITION], state[1, OUT] = 8 * ahead1 - (n1 & 63), out1
    state[2, POSITION], state[2, OUT] = 8 * ahead2 - (n2 & 63), out2
    return needy


@numba.njit(nogil=True, cache=True, forceinline=True)
def _loaded(position):
    """The byte to load from next, the bits before it that have not been taken, and how many they are."""
    return (position >> 3) + 7, shifted(load64(position >> 3), position & 7), 56 - (position & 7)


@numba.njit(nogil=True, cache=True, forceinline=True)
def _literals(codes, tables, ahead, bits, n, out):
    """Up to two literals."""
    bits |= load64(ahead) << (n & 63)
    ahead += 7 - (n >> 3 & 7)
    n |= 56
    literal = np.int64(codes[tables + LITERAL + 2 * (bits & MASK)])
    store8(out, literal >> 8)
    bits = shifted(bits, literal & 63)
    second = np.int64(codes[tables + LITERAL + 2 * (bits & MASK)])
    store8(out + (literal >> 24), second >> 8)
    literal += second
    return ahead, shifted(bits, second & 63), n - literal, out + (literal >> 24)


@numba.njit(nogil=True, cache=True, forceinline=True)
def _match(codes, tables, bits, n, out, first):
    """A match, unless what follows is a literal or needs care."""
    match = np.int64(codes[tables + MATCH + 2 * (bits & MASK)])
    if unlikely(match <= NEEDS_CARE):
        return bits, n, out, match
    behind = shifted(bits, match & 63)
    far = np.int64(codes[tables + DISTANCE + (behind & MASK)])
    distance = (far >> BASE) + shifted(behind & ((1 << (far & 63)) - 1), far >> 8 & 63)
    source = out - distance
    if unlikely((far == NOTHING) | (source < first)):
        return bits, n, out, NEEDS_CARE
    length = (match >> BASE) + shifted(bits & ((1 << (match & 63)) - 1), match >> 8 & 63)
    store32(out, load32(source))
    store32(out + 4, load32(source + 4))
    store32(out + 8, load32(source + 8))
    store32(out + 12, load32(source + 12))
    if unlikely(length > 16):
        for k in range(16, length, 4):
            store32(out + k, load32(source + k))
    return shifted(behind, far & 63), n - match - far, out + length, 0


@numba.njit(nogil=True, cache=True)
def _peek(state, slot):
    """What comes next, of which the lowest 56 bits are sure."""
    return load64(state[slot, POSITION] >> 3) >> (state[slot, POSITION] & 7)


@numba.njit(nogil=True, cache=True)
def _take(state, slot, n):
    """The next `n` bits."""
    bits = _peek(state, slot) & ((1 << n) - 1)
    state[slot, POSITION] += n
    return bits


@numba.njit(nogil=True, cache=True)
def _next(bits, book):
    """The next symbol of a code of any length and the length; the symbol is negative if there is none."""
    code = shifted(reversed_bits(bits), 64 - MAX_CODE)
    length = 1
    for k in range(LIMIT + 1, LIMIT + MAX_CODE + 1):
        length += code >= book[k]
    if length > MAX_CODE:
        return -1, 0
    return np.int64(book[book[DELTA + length] + (code >> (MAX_CODE - length))]), length


@numba.njit(nogil=True, cache=True)
def _symbol(state, codes, books, slot):
    """One literal, match or end of a block, whatever it takes."""
    out, position = state[slot, OUT], state[slot, POSITION]
    symbol, n = _next(load64(position >> 3) >> (position & 7), books[slot, 0])
    position += n
    if 0 <= symbol < N_LITERALS:
        store8(out, symbol)
        state[slot, OUT], state[slot, POSITION] = out + 1, position
        return GOES_ON
    if symbol == END_OF_BLOCK:
        state[slot, POSITION] = position
        return DONE if state[slot, IS_FINAL] else _block(state, codes, books, slot)
    symbol -= END_OF_BLOCK + 1
    if symbol < 0 or symbol >= len(LENGTH_BASE):
        return BAD
    n = LENGTH_EXTRA[symbol]
    length = LENGTH_BASE[symbol] + (load64(position >> 3) >> (position & 7) & ((1 << n) - 1))
    position += n
    bits = load64(position >> 3) >> (position & 7)
    symbol, n = _next(bits, books[slot, 1])
    if symbol < 0 or symbol >= N_DISTANCES:
        return BAD
    source = out - DISTANCE_BASE[symbol] - (bits >> n & ((1 << DISTANCE_EXTRA[symbol]) - 1))
    if source < state[slot, FIRST]:
        return BAD
    for k in range(length):
        store8(out + k, load8(source + k))
    state[slot, OUT], state[slot, POSITION] = out + length, position + n + DISTANCE_EXTRA[symbol]
    return GOES_ON


@numba.njit(nogil=True, cache=True)
def _block(state, codes, books, slot):
    """Begins the next block whose symbols are codes; those that are stored are copied."""
    while state[slot, POSITION] <= state[slot, STOP]:
        state[slot, IS_FINAL], kind = _take(state, slot, 1), _take(state, slot, 2)
        if kind == 3:
            return BAD
        if kind:
            return _read_codes(state, codes, books, slot, kind == 1)
        state[slot, POSITION] = (state[slot, POSITION] + 7) >> 3 << 3
        n, complement = _take(state, slot, 16), _take(state, slot, 16)
        stream, out, room = state[slot, POSITION] >> 3, state[slot, OUT], state[slot, LAST] - state[slot, OUT]
        if state[slot, IS_HEAD]:
            n = min(n, room)
        elif n ^ complement != 0xFFFF or n > room:
            return BAD
        if 8 * (stream + n) > state[slot, STOP]:
            return BAD
        for k in range(n):
            store8(out + k, load8(stream + k))
        state[slot, OUT] += n
        state[slot, POSITION] += 8 * n
        if state[slot, OUT] == state[slot, LAST] and (state[slot, IS_HEAD] or state[slot, IS_FINAL]):
            return DONE
        if state[slot, IS_FINAL]:
            return BAD
    return BAD


@numba.njit(nogil=True, cache=True)
def _read_codes(state, codes, books, slot, is_fixed):
    """Reads the codes of a block, if they are not the fixed ones, and makes their tables."""
    lengths = np.zeros(320 + 144, np.uint8)  # the last may be repeated beyond what there is
    n_symbols, n_distances = 288, N_DISTANCES
    tables = slot * TABLES
    if is_fixed:
        lengths[:144], lengths[144:256], lengths[256:280], lengths[280:288], lengths[288:318] = 8, 9, 7, 8, 5
    else:
        n_symbols, n_distances, n = 257 + _take(state, slot, 5), 1 + _take(state, slot, 5), 4 + _take(state, slot, 4)
        for i in range(n):
            lengths[CODE_ORDER[i]] = _take(state, slot, 3)
        if not _fill_book(lengths[:19], books[slot, 0]):
            return BAD
        _fill_table(codes[tables : tables + SIZE], books[slot, 0], CODE_ENTRIES, NOTHING, ROUND_BITS)
        lengths[:19] = 0
        n, i, position = n_symbols + n_distances, 0, state[slot, POSITION]
        while i < n:
            bits = load64(position >> 3) >> (position & 7)
            for _ in range(LENGTHS_AT_ONCE):
                entry = np.int64(codes[tables + (bits & MASK)])
                length, symbol = entry & 255, entry >> 8
                if symbol < 16:
                    if entry == NOTHING:
                        return BAD
                    lengths[i] = symbol
                    i += 1
                else:
                    if symbol == 16 and i == 0:
                        return BAD
                    value = np.int64(lengths[i - 1]) if symbol == 16 else 0
                    extra = REPEAT_EXTRA[symbol - 16]
                    times = REPEAT_BASE[symbol - 16] + (bits >> length & ((1 << extra) - 1))
                    length += extra
                    for k in range(0, times, 8):
                        store64(lengths.ctypes.data + i + k, value * 0x0101010101010101)
                    i += times
                position += length
                bits >>= length
                if i >= n:
                    break
        state[slot, POSITION] = position
        if i > n:
            return BAD
    if not _fill_book(lengths[:n_symbols], books[slot, 0]):
        return BAD
    if not _fill_book(lengths[n_symbols : n_symbols + n_distances], books[slot, 1]):
        return BAD
    both = codes[tables : tables + DISTANCE].view(np.int64)
    _fill_table(both, books[slot, 0], SYMBOL_ENTRIES, NEEDS_CARE * BESIDE, ROUND_BITS)
    # What two literals, and a length with 5 bits behind its code, leave.
    most = ROUND_BITS - 3 * INDEX_BITS - 5
    _fill_table(codes[tables + DISTANCE : tables + TABLES], books[slot, 1], DISTANCE_ENTRIES, NOTHING, most)
    return GOES_ON


@numba.njit(nogil=True, cache=True)
def _fill_book(lengths, book):
    """Puts symbols in the order of their codes; False if there are more codes than there can be."""
    places = np.zeros(MAX_CODE + 1, np.int64)
    for length in lengths:
        places[length] += 1
    code, place = 0, SYMBOLS
    for length in range(1, MAX_CODE + 1):
        n = places[length]
        places[length] = place
        book[DELTA + length] = place - code
        code, place = code + n, place + n
        if code > 1 << length:
            return False
        book[LIMIT + length] = code << (MAX_CODE - length)
        code <<= 1
    for symbol in range(len(lengths)):
        length = lengths[symbol]
        if length:
            book[places[length]] = symbol
            places[length] += 1
    return True


@numba.njit(nogil=True, cache=True)
def _fill_table(table, book, entries, otherwise, most):
    """Fills a table by the next INDEX_BITS of a stream; what is longer, or takes more bits than `most`, needs care."""
    table[0] = otherwise
    code, place = 0, SYMBOLS
    for length in range(1, INDEX_BITS + 1):
        n = np.uint64(1 << (length - 1))
        for i in range(n):
            table[n + i] = table[i]
        code <<= 1
        while code < book[LIMIT + length] >> (MAX_CODE - length):
            symbol = np.int64(book[place])
            entry = entries[symbol, 0] + entries[symbol, 1] * length
            table[REVERSED[code << (INDEX_BITS - length)]] = entry if entry & 255 <= most else otherwise
            code, place = code + 1, place + 1


class Streams(NamedTuple):
    """zlib streams in memory, and room for what two of them hold."""

    packed: np.ndarray
    places: np.ndarray
    sizes: np.ndarray
    room: np.ndarray


def hold(streams: Sequence[bytes], wanted: int) -> Streams:
    """What `inflate_each` takes. wanted: bytes of each."""
    sizes = np.array([len(stream) for stream in streams])
    packed = np.frombuffer(b"".join([*streams, bytes(IN_SLACK)]), np.uint8)
    return Streams(packed, np.cumsum([0, *sizes[:-1]]), sizes, np.empty((SLOTS, wanted + OUT_SLACK), np.uint8))


@numba.njit(nogil=True, cache=True)
def inflate_each(streams, state, codes, books, wanted, is_head, results):
    """Inflates the streams to the rows of `results`, if it has any: the number of one that is damaged, or -1."""
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
