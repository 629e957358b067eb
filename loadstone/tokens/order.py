"""Compiled loops: the genes of a cell in the order of their values."""

import numpy as np

from loadstone.codecs.compiled import compiled, inlined

DIGIT = 11  # bits
BUCKETS = 1 << DIGIT
FEW = 32  # values that are sorted by insertion
SMALL = 3  # the largest of the values that most genes have, which need no sorting
FINE, NO_COUNT, TWICE, OUTSIDE = -1, 0, 1, 2


@inlined
def room(indptr):
    """Arrays with room for the longest cell and one more: genes, values, order, and those that `descending` needs."""
    longest = 0
    for i in range(len(indptr) - 1):
        longest = max(longest, indptr[i + 1] - indptr[i])
    n = np.int64(longest + 1)
    spare = np.empty(n, np.float32), np.empty(n, np.uint32), np.empty(n, np.int32), np.empty((2, BUCKETS), np.int32)
    return np.empty(n, np.int32), np.empty(n, np.float32), np.empty(n, np.int32), spare


@compiled
def expressed(data, indices, start, stop, vocabulary, has_all, genes, values):
    """Writes the genes of a cell that have a token, and their values, with the genes in ascending order.

    start, stop: of the cell in data and indices. has_all: whether every gene has a token. genes: int32, values:
    float32, both with room for one more than the cell has. Values of 0 are left out. Returns (their number, FINE), or
    (a place in data, NO_COUNT) for a value that is not a whole number from 0 to 2**31 - 1, or (such a place, OUTSIDE)
    for a gene that the vocabulary lacks, or (a gene, TWICE) for one that the cell has twice.
    """
    size, most = np.uint64(stop - start), np.int64(len(vocabulary))
    stored, numbers = data[start:stop], indices[start:stop]
    is_wrong, has_zeros = False, False
    for k in range(size):  # without branches, and with unsigned indices, it is vectorized
        value, gene = np.float32(stored[k]), np.int32(numbers[k])
        genes[k], values[k] = gene, value
        is_wrong |= (np.float32(np.int32(value)) != value) | (value < 0) | (gene < 0) | (gene >= most)
        has_zeros |= value == 0
    if is_wrong:
        return _what_is_wrong(data, indices, start, stop, most)
    n = np.int64(size)
    if has_zeros or not has_all:
        n = np.int64(0)
        for k in range(size):
            gene, value = genes[k], values[k]
            genes[n], values[n] = gene, value
            n += (value > 0) & (vocabulary[np.uint32(gene)] >= 0)
    descends = False
    for k in range(np.uint64(max(n - 1, 0))):
        descends |= genes[k] >= genes[k + np.uint64(1)]
    if descends:
        by_gene = np.argsort(genes[:n], kind="mergesort")
        genes[:n], values[:n] = genes[:n][by_gene], values[:n][by_gene]
        for j in range(1, n):
            if genes[j] == genes[j - 1]:
                return np.int64(genes[j]), TWICE
    return n, FINE


@compiled
def _what_is_wrong(data, indices, start, stop, n_genes):
    for k in range(start, stop):
        value = np.float32(data[k])
        if not 0 <= indices[k] < n_genes:
            return np.int64(k), OUTSIDE
        if np.float32(np.int32(value)) != value or value < 0:
            return np.int64(k), NO_COUNT
    return np.int64(start), NO_COUNT


@compiled
def descending(values, n, are_whole, order, spare):
    """Writes the places of values[:n], float32 above 0, into `order`: the largest value's first, equal ones in order.

    are_whole: whether all values are whole numbers; then those up to SMALL, which most genes have, are found rather
    than sorted. order, spare: of `room`.
    """
    keys, spare_keys, spare_places, counts = spare
    above = np.float32(SMALL if are_whole else 0)
    m = np.int64(0)
    for i in range(n):
        keys[m], order[m] = values[i], i
        m += values[i] > above
    _sort(keys.view(np.uint32), order, m, spare_keys, spare_places, counts)
    while above > 0:
        for i in range(n):
            order[m] = i
            m += values[i] == above
        above -= np.float32(1)


@inlined
def _sort(keys, places, n, spare_keys, spare_places, counts):
    """Sorts keys[:n] and places[:n] by falling keys, stably: the bits of numbers above 0, ordered as the numbers are.

    Method: radix sort from the lower digit on, by the highest 2 * DIGIT bits in which keys differ, and then insertion,
    which finds little to do.
    """
    if n > FEW:
        least, most = keys[0], keys[0]
        for i in range(n):
            least, most = min(least, keys[i]), max(most, keys[i])
        bits = np.uint32(0)
        while (most - least) >> bits:
            bits += np.uint32(1)
        shift = np.uint32(bits - 2 * DIGIT if bits > 2 * DIGIT else 0)
        _pass(keys, places, n, most, shift, spare_keys, spare_places, counts[0])
        _pass(spare_keys, spare_places, n, most, shift + np.uint32(DIGIT), keys, places, counts[1])
    for i in range(1, n):
        key, place = keys[i], places[i]
        j = i
        while j > 0 and keys[j - 1] < key:
            keys[j], places[j] = keys[j - 1], places[j - 1]
            j -= 1
        keys[j], places[j] = key, place


@inlined
def _pass(keys, places, n, most, shift, to_keys, to_places, counts):
    """Moves keys and places to the order of the digit at `shift` of most - key."""
    counts[:] = 0
    for i in range(n):
        counts[((most - keys[i]) >> shift) & np.uint32(BUCKETS - 1)] += 1
    total = np.int32(0)
    for bucket in range(BUCKETS):
        count = counts[bucket]
        counts[bucket] = total
        total += count
    for i in range(n):
        bucket = ((most - keys[i]) >> shift) & np.uint32(BUCKETS - 1)
        to = counts[bucket]
        counts[bucket] = to + 1
        to_keys[to], to_places[to] = keys[i], places[i]


@inlined
def framed(genes, n, vocabulary, special, ids, mask):
    """Writes the tokens of n genes into a row, between the special ones, and padding behind them.

    special: see `Frame.special`. Returns the place of the first gene.
    """
    first, last, pad = special
    at = 0
    if first >= 0:
        ids[0], at = first, 1
    begin = at
    for j in range(n):
        ids[at] = vocabulary[np.uint32(genes[j])]
        at += 1
    if last >= 0:
        ids[at] = last
        at += 1
    ids[at:], mask[:at], mask[at:] = pad, True, False
    return begin
