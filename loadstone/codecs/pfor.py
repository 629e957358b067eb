"""The integer codec of cellstream's archives, "simdfastpfor256" of the library FastPFor, for the cells of a task.

A cell is a frame: the length of the first stream in bytes (4), a stream of the differences between its gene indices,
and a stream of its values. A stream is a sequence of words of 32 bits, little endian:

- The number of integers in whole blocks of BLOCK, then pages of up to PAGE integers, then the other integers as bytes.
- A page: the offset of its description in words from here, and the blocks, each as two groups of bit-packed integers
  (bitpacking.py). The description: its number of bytes, and these bytes, padded to whole words; a map with a bit for
  each number of bits k (bit k - 1); and for each of these the exceptions: their number, and their high bits with k bits
  each, whole groups of 128 as above, the others one after another, lowest bit first.
- The bytes of a block: its number of bits b, and its number of exceptions; if there are any, the number of bits of the
  largest integer, and the place of each exception in the block. An exception has further bits above the lowest b: these
  are one set bit if only one bit is missing, or else the next exception with as many bits as are missing.
- An integer as bytes: 7 bits each, the lowest first, and the highest bit is set in the last byte. Padding bytes are 0.

The bytes come from a file, so everything that is read from them is checked before it is used as a place or a length.
"""

import numpy as np

from loadstone.codecs.bitpacking import PACKED, unpacked
from loadstone.codecs.compiled import compiled, inlined
from loadstone.codecs.intrinsics import borrowed, call, load8, load32, load64, shifted, store32
from loadstone.codecs.kernel import scratch, stream
from loadstone.codecs.registry import C_FUNCTIONS, PLAIN

BLOCK = 256  # integers
PAGE = 65_536  # integers
RUN = 2**17  # bytes that are read at once, if so many cells follow one another in the file
IN_SLACK = 8  # bytes that are read after the end of a frame
MOST_BITS = 32
LAST = 0x8080808080808080 - 2**64  # the highest bit of each of 8 bytes


def decode_cells(fd, place, size, count, target, data, indices, n_genes) -> int:
    """Reads and decodes cells, and writes their values and gene indices to the arrays of a fetch.

    fd: the file descriptor. Cell i is the frame of size[i] bytes at offset place[i] of the file, with count[i] values,
    which are written to data[target[i] :] and indices[target[i] :], float32 and int32. All of these are int64 (cells,),
    and target[i] + count[i] is at most the length of both arrays. n_genes: gene indices must be below it. Returns the
    number of cells that were decoded: if it is not all of them, the next one could not be read or is damaged.
    """
    packed = scratch("frames", 1, max(RUN, int(size.max())) + IN_SLACK)
    # The integers of a stream, and its exceptions, which are unpacked in groups of 128 for each number of bits.
    numbers = scratch("numbers", 2, 4 * (int(count.max()) + PACKED * MOST_BITS)).view(np.uint32)
    places = scratch("places", 2, 8 * (MOST_BITS + 1)).view(np.int64)
    pread = C_FUNCTIONS[PLAIN]
    return _decode_cells(pread, fd, place, size, count, target, data, indices, n_genes, packed[0], *numbers, places)


@compiled
def _decode_cells(pread, fd, place, size, count, target, data, indices, n_genes, packed, numbers, extra, places):
    data, indices, packed = borrowed(data), borrowed(indices), borrowed(packed)
    numbers, extra, places = borrowed(numbers), borrowed(extra), borrowed(places)
    chunk, result = np.int64(packed.ctypes.data), np.int64(extra.ctypes.data)
    to_indices, to_data = np.int64(indices.ctypes.data), np.int64(data.ctypes.data)
    room = len(packed) - IN_SLACK
    begin = end = np.int64(0)  # what part of the file lies in `packed`
    for i in range(len(place)):
        if not (begin <= place[i] and place[i] + size[i] <= end):
            begin, end = place[i], place[i] + size[i]
            k = i + 1
            while k < len(place) and place[k] == end and end + size[k] - begin <= room:
                end += size[k]
                k += 1
            if call(pread, (fd, chunk, end - begin, begin)) != end - begin:
                return i
        frame, n = chunk + place[i] - begin, count[i]
        if size[i] < 4:
            return i
        middle = 4 + load32(frame)
        if middle > size[i] or not decode_stream(frame + 4, middle - 4, n, numbers, extra, places):
            return i
        if not _add_up(numbers, n, extra.view(np.int32), n_genes):
            return i
        stream(result, to_indices + 4 * target[i], 4 * n)
        if not decode_stream(frame + middle, size[i] - middle, n, numbers, extra, places):
            return i
        _convert(numbers, n, extra.view(np.float32))
        stream(result, to_data + 4 * target[i], 4 * n)
    return len(place)


@inlined
def _add_up(gaps, n, indices, n_genes):
    """Writes the sums of the first n gaps to `indices`. Returns whether the last, which is the largest, is a gene."""
    total = np.int64(0)
    for k in range(n):
        total += np.int64(gaps[k])
        indices[k] = total
    return total < n_genes or n == 0


@inlined
def _convert(numbers, n, values):
    """Writes the first n numbers to `values`, float32."""
    signed = numbers.view(np.int32)
    every = np.int32(0)
    for k in range(n):  # there is a vector instruction for the conversion of signed integers
        values[k] = signed[k]
        every |= signed[k]
    if every < 0:
        for k in range(n):
            values[k] = numbers[k]


@compiled
def decode_stream(stream, size, n, numbers, extra, places):
    """Decodes a stream of `size` bytes at the address `stream` to numbers[:n]. Returns whether it is valid.

    extra, places: scratch memory for n exceptions and 32 groups of PACKED integers, uint32, and int64 (2, 33).
    """
    if n == 0:
        return size == 0
    if size < 4 or size % 4:
        return False
    words = size // 4
    whole = load32(stream)
    if whole > n or whole % BLOCK:
        return False
    out = np.int64(numbers.ctypes.data)
    at, done = 1, 0
    while done < whole:
        length = min(PAGE, whole - done)
        at = _decode_page(stream, at, words, length, out + 4 * done, extra, places)
        if at < 0:
            return False
        done += length
    return _decode_bytes(stream + 4 * at, stream + size, numbers, done, n)


@compiled
def _decode_page(stream, at, words, length, out, extra, places):
    """Decodes the page of `length` integers at word `at` of a stream of `words` words to the address `out`.

    Returns the number of the first word after the page; -1 if the page is not valid.
    """
    if at >= words:
        return -1
    description = at + load32(stream + 4 * at)
    if description <= at or description >= words:
        return -1
    n_bytes = load32(stream + 4 * description)
    byte = stream + 4 * description + 4
    past = byte + n_bytes
    after = description + 1 + (n_bytes + 3) // 4
    if after >= words:
        return -1
    bitmap = load32(stream + 4 * after)
    after += 1
    following, last = places[0], places[1]  # for each number of bits: the exceptions following[k] to last[k] of `extra`
    used = n_exceptions = 0
    for k in range(2, MOST_BITS + 1):
        following[k] = last[k] = used
        if not (bitmap >> (k - 1)) & 1:
            continue
        if after >= words:
            return -1
        n = load32(stream + 4 * after)
        after += 1
        n_exceptions += n
        taken = n // PACKED * 4 * k + (n % PACKED * k + 31) // 32
        if n_exceptions > length or after + taken > words:
            return -1
        _unpack_exceptions(stream + 4 * after, n, k, extra, used)
        last[k] = used + n
        used += -(-n // PACKED) * PACKED
        after += taken
    packed = stream + 4 * (at + 1)
    for block in range(length // BLOCK):
        if byte + 2 > past:
            return -1
        bits, n = load8(byte), load8(byte + 1)
        byte += 2
        if bits > MOST_BITS or packed + 32 * bits > stream + 4 * description:
            return -1
        integers = out + 4 * BLOCK * block
        unpacked(packed, bits, integers)
        unpacked(packed + 16 * bits, bits, integers + 4 * PACKED)
        packed += 32 * bits
        if n:
            if byte + 1 + n > past:
                return -1
            k = load8(byte) - bits
            if k < 1 or k > MOST_BITS - bits or (k > 1 and following[k] + n > last[k]):
                return -1
            for j in range(n):
                place = integers + 4 * load8(byte + 1 + j)
                high = np.int64(1)
                if k > 1:
                    high = np.int64(extra[following[k] + j])
                store32(place, load32(place) | high << bits)
            following[k] += n
            byte += 1 + n
    return after


@inlined
def _unpack_exceptions(packed, n, k, extra, at):
    """Writes n exceptions of k bits each, which lie at the address `packed`, to extra[at:]."""
    groups = n // PACKED
    for group in range(groups):
        unpacked(packed + 16 * k * group, k, np.int64(extra.ctypes.data) + 4 * (at + PACKED * group))
    packed += 16 * k * groups
    at += PACKED * groups
    for i in range(n % PACKED):
        bit = i * k
        extra[at + i] = shifted(load64(packed + bit // 8), bit % 8) & ((1 << k) - 1)


@inlined
def _decode_bytes(byte, past, numbers, k, n):
    """Decodes the integers from number k to n, which lie as bytes from the address `byte` to `past` (exclusive)."""
    while k < n:
        eight = load64(byte)
        if eight & LAST == LAST and n - k >= 8 and past - byte >= 8:
            for j in range(8):
                numbers[k + j] = shifted(eight, 8 * j) & 127
            k += 8
            byte += 8
            continue
        number = shift = np.int64(0)
        while True:
            if byte >= past or shift > 28:
                return False
            part = load8(byte)
            byte += 1
            number |= (part & 127) << shift
            shift += 7
            if part & 128:
                break
        numbers[k] = number
        k += 1
    while byte < past and load8(byte) == 0:
        byte += 1
    return byte == past
