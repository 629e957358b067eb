"""Compiled loops: the genes of a cell in the order of their values."""

import numpy as np

from loadstone.codecs.compiled import compiled, inlined

BITS = 11  # of a digit: three of them hold a float32
DIGITS, BUCKETS = 3, 1 << BITS
FINE, NO_COUNT, TWICE = -1, 0, 1


@compiled
def expressed(data, indices, start, stop, vocabulary, genes, values):
    """Writes the genes of a cell that have a token, and their values, with the genes in ascending order.

    start, stop: of the cell in data and indices. genes: int32, values: float32, both with room for the cell. Values of
    0 are left out. Returns (their number, FINE), or (a place in data, NO_COUNT) for a value that is not a whole number
    of at least 0, or (a gene, TWICE) for one that the cell has twice.
    """
    n, ascending = 0, True
    for k in range(start, stop):
        value, gene = np.float32(data[k]), np.int32(indices[k])
        if not (value >= 0 and value == np.floor(value) and value < np.inf):
            return k, NO_COUNT
        if value > 0 and vocabulary[gene] >= 0:
            ascending &= n == 0 or genes[n - 1] < gene
            genes[n], values[n] = gene, value
            n += 1
    if not ascending:
        by_gene = np.argsort(genes[:n], kind="mergesort")
        genes[:n], values[:n] = genes[:n][by_gene], values[:n][by_gene]
        for j in range(1, n):
            if genes[j] == genes[j - 1]:
                return genes[j], TWICE
    return n, FINE


@compiled
def descending(values, n, places, spare_keys, spare_places, counts):
    """Sorts values[:n], float32 above 0, to descending order, and writes the place of each into places[:n].

    Equal values keep their order. Method: radix sort by the bits of the numbers, which for floats above 0 are ordered
    as they are, from the lowest digit on; a digit that all have in common is passed over. spare_keys, spare_places:
    float32 and int32 with the room of values and places. counts: int64 (DIGITS, BUCKETS).
    """
    keys, others = values.view(np.uint32), spare_keys.view(np.uint32)
    counts[:] = 0
    for i in range(n):
        places[i] = i
        for digit in range(DIGITS):
            counts[digit, (~keys[i] >> np.uint32(BITS * digit)) & np.uint32(BUCKETS - 1)] += 1
    for digit in range(DIGITS):
        shift = np.uint32(BITS * digit)
        if n and counts[digit, (~keys[0] >> shift) & np.uint32(BUCKETS - 1)] == n:
            continue
        total = 0
        for bucket in range(BUCKETS):
            count = counts[digit, bucket]
            counts[digit, bucket] = total
            total += count
        for i in range(n):
            bucket = (~keys[i] >> shift) & np.uint32(BUCKETS - 1)
            to = counts[digit, bucket]
            counts[digit, bucket] = to + 1
            others[to], spare_places[to] = keys[i], places[i]
        keys[:n], places[:n] = others[:n], spare_places[:n]


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
        ids[at] = vocabulary[genes[j]]
        at += 1
    if last >= 0:
        ids[at] = last
        at += 1
    ids[at:], mask[:at], mask[at:] = pad, True, False
    return begin
