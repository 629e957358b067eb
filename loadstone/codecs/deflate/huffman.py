"""Reads the Huffman codes of a DEFLATE block (RFC 1951), and builds tables and books that decode them.

A table is indexed by the next INDEX_BITS bits of a stream; one lookup decodes a code of at most that length. A book
lists the symbols in the order of their codes; a search in it decodes a code of any length.
"""

import numpy as np

from loadstone.codecs.compiled import compiled
from loadstone.codecs.intrinsics import bits_at, reversed_bits, shifted, store64

INDEX_BITS = 10
SIZE, MASK = 1 << INDEX_BITS, (1 << INDEX_BITS) - 1
# The two tables of a slot, one after another. For the next bits, the first table has two adjacent entries: one if they
# are a literal (LITERAL), one if they are the length of a match (MATCH). The second table has one entry, a distance.
# The lowest byte of an entry is the number of bits that it consumes. The next byte is the number of bits of the code
# alone, without its extra bits; for a literal it is the literal itself, and the highest byte is 1.
LITERAL, MATCH, DISTANCE, TABLES = 0, 1, 2 * SIZE, 3 * SIZE
REVERSED = np.array([int(f"{i:0{INDEX_BITS}b}"[::-1], 2) for i in range(SIZE)])  # the first bit of a code is the lowest
BASE = 16  # the bit of an entry at which the base of a length or distance begins; the extra bits are added to it
NOTHING, NEEDS_CARE = 0, 1  # entries without a code: another kind of symbol; a longer code, or the end of a block
LENGTHS_AT_ONCE = 4  # code lengths decoded from one load; each takes 14 bits at most
ROUND_BITS = 56  # valid bits of one load; all codes of a round of inflate.py must fit into them

MAX_CODE, N_LITERALS, END_OF_BLOCK, N_SYMBOLS, N_DISTANCES = 15, 256, 256, 286, 30
MAX_EXTRA = 5  # extra bits of a length
# The most bits from the start of `read_codes` to its last load: 14 bits with the numbers of codes, 19 lengths of three
# bits, and the lengths of all codes but one, of up to 7 bits each. (A repeat takes up to 14 bits for at least three
# lengths.)
READ_CODES_BITS = 14 + 19 * 3 + (N_SYMBOLS + N_DISTANCES - 1) * 7
NEXT_MATCH_BITS = MAX_CODE + MAX_EXTRA  # the same for `next_match`: a length precedes the code of a distance
# The layout of a book. For each code length: the end of the codes up to this length, as the first MAX_CODE bits of a
# stream, and the position of a code's symbol minus the code. Then the symbols, in the order of their codes.
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
    """For each symbol, (entry, factor): its table entry is entry + factor * the length of its code. int64 (symbols, 2).

    parts: pairs (entries of consecutive symbols, their common factor).
    """
    return np.concatenate([np.stack(np.broadcast_arrays(entry, times), axis=1) for entry, times in parts])


NUMBERED = 0x101  # a factor that adds the length of a code to both of the lowest bytes of an entry
BESIDE = 1 << 32  # shifts an entry from LITERAL to MATCH
SYMBOL_ENTRIES = _entries(
    (1 << 24 | np.arange(N_LITERALS) << 8, 1),
    ([NEEDS_CARE * BESIDE], 0),
    ((LENGTH_BASE << BASE | LENGTH_EXTRA) * BESIDE, NUMBERED * BESIDE),
    ([NEEDS_CARE * BESIDE] * 2, 0),
)
DISTANCE_ENTRIES = _entries((DISTANCE_BASE << BASE | DISTANCE_EXTRA, NUMBERED), ([NOTHING] * 2, 0))
CODE_ENTRIES = _entries((np.arange(19) << 8, 1))


@compiled
def fixed_codes(tables, books):
    """Builds the tables and books of the fixed codes of RFC 1951, 3.2.6. Returns True."""
    lengths = np.zeros(288 + 32, np.uint8)  # includes the unused codes, which make the sets of codes complete
    lengths[:144], lengths[144:256], lengths[256:280], lengths[280:288], lengths[288:] = 8, 9, 7, 8, 5
    return _make(lengths, 288, tables, books)


@compiled
def read_codes(position, tables, books):
    """Reads the codes at a bit address and builds their tables and books. Returns the bit address after the codes.

    Returns -1 if the codes are damaged. Does not check for the end of the stream. Its last load begins at most
    READ_CODES_BITS after `position`.
    """
    bits = bits_at(position)
    n_symbols, n_distances, n = 257 + (bits & 31), 1 + (bits >> 5 & 31), 4 + (bits >> 10 & 15)
    if n_symbols > N_SYMBOLS or n_distances > N_DISTANCES:
        return -1
    position += 14
    # The last repeat may begin one entry before the end. It has up to 138 entries, written 8 at a time: 144 bytes.
    lengths = np.zeros(N_SYMBOLS + N_DISTANCES + 144, np.uint8)
    for i in range(n):
        lengths[CODE_ORDER[i]] = bits_at(position) & 7
        position += 3
    if not _fill_book(lengths[:19], books[0]) or not _is_complete(books[0]):
        return -1
    _fill_table(tables[:SIZE], books[0], CODE_ENTRIES, NOTHING, ROUND_BITS)
    lengths[:19] = 0
    n, i = n_symbols + n_distances, 0
    while i < n:
        bits = bits_at(position)
        for _ in range(LENGTHS_AT_ONCE):
            entry = np.int64(tables[bits & MASK])
            length, symbol = entry & 255, entry >> 8
            if symbol < 16:
                if entry == NOTHING:
                    return -1
                lengths[i] = symbol
                i += 1
            else:
                if symbol == 16 and i == 0:
                    return -1
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
    if i > n or not _make(lengths[:n], n_symbols, tables, books):
        return -1
    return position


@compiled
def _make(lengths, n_symbols, tables, books):
    """Builds tables and books from the lengths of all codes. Returns False if the set is one that zlib refuses.

    lengths: the code length of each symbol, then of each distance, uint8. 0: the code is not used.
    """
    if lengths[END_OF_BLOCK] == 0:
        return False
    if not _fill_book(lengths[:n_symbols], books[0]) or not _fill_book(lengths[n_symbols:], books[1]):
        return False
    for book in books:
        # An incomplete set is allowed only if it has at most one code, of one bit.
        if not _is_complete(book) and book[LIMIT + 1] != book[LIMIT + MAX_CODE]:
            return False
    _fill_table(tables[:DISTANCE].view(np.int64), books[0], SYMBOL_ENTRIES, NEEDS_CARE * BESIDE, ROUND_BITS)
    # The bits of a round that are left after two literals and a length with 5 extra bits.
    most = ROUND_BITS - 3 * INDEX_BITS - 5
    _fill_table(tables[DISTANCE:], books[1], DISTANCE_ENTRIES, NOTHING, most)
    return True


@compiled
def next_symbol(bits, book):
    """(symbol, length of its code in bits) of the next code in `bits`; the symbol is -1 if the bits are no code."""
    code = shifted(reversed_bits(bits), 64 - MAX_CODE)
    length = 1
    for k in range(LIMIT + 1, LIMIT + MAX_CODE + 1):
        length += code >= book[k]
    if length > MAX_CODE:
        return -1, 0
    return np.int64(book[book[DELTA + length] + (code >> (MAX_CODE - length))]), length


@compiled
def next_match(position, symbol, book):
    """Reads the rest of a match after its length symbol. Returns (bit address after the match, length, distance).

    The bit address is -1 if the match is damaged. position: the bit address after the length symbol `symbol`. book: the
    book of the distances.
    """
    symbol -= END_OF_BLOCK + 1
    if symbol < 0 or symbol >= len(LENGTH_BASE):
        return -1, 0, 0
    length = LENGTH_BASE[symbol] + (bits_at(position) & ((1 << LENGTH_EXTRA[symbol]) - 1))
    position += LENGTH_EXTRA[symbol]
    bits = bits_at(position)
    symbol, n = next_symbol(bits, book)
    if symbol < 0 or symbol >= N_DISTANCES:
        return -1, 0, 0
    distance = DISTANCE_BASE[symbol] + (bits >> n & ((1 << DISTANCE_EXTRA[symbol]) - 1))
    return position + n + DISTANCE_EXTRA[symbol], length, distance


@compiled
def _is_complete(book):
    """Whether the set of codes is complete: every sequence of bits begins with a code."""
    return book[LIMIT + MAX_CODE] == 1 << MAX_CODE


@compiled
def _fill_book(lengths, book):
    """Writes the places of the codes of each length, and the symbols in the order of their codes, to `book`.

    lengths: the code length of each symbol in bits; 0: it has none. Returns False if the codes are too many for their
    lengths.
    """
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


@compiled
def _fill_table(table, book, entries, otherwise, most):
    """Fills a table, which is indexed by the next INDEX_BITS bits of a stream, with the codes in `book`.

    entries: see `_entries`. Bits that are not a code of at most INDEX_BITS bits get the entry `otherwise`. So do codes
    that consume more than `most` bits with their extra bits.
    """
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
