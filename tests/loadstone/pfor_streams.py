"""A slow decoder of FastPFor's streams, written from their description in loadstone/codecs/pfor.py."""

BLOCK, PAGE, GROUP, LANES, WORD = 256, 65_536, 128, 4, 32


class DamagedError(Exception):
    pass


def decode_slowly(stream: bytes, n: int) -> list[int] | None:
    """The n integers of a stream; None if it is not valid."""
    try:
        return _decode(stream, n)
    except (DamagedError, IndexError):
        return None


def _decode(stream: bytes, n: int) -> list[int]:
    if len(stream) % 4:
        raise DamagedError
    words = [int.from_bytes(stream[i : i + 4], "little") for i in range(0, len(stream), 4)]
    if n == 0 and not words:
        return []
    whole, at, numbers = words[0], 1, []
    if n == 0 or whole > n or whole % BLOCK:
        raise DamagedError
    while len(numbers) < whole:
        page, at = _page(words, at, min(PAGE, whole - len(numbers)))
        numbers += page
    rest = stream[4 * at :]
    while len(numbers) < n:
        number = shift = 0
        while True:
            byte, rest = rest[0], rest[1:]
            if shift > 28:
                raise DamagedError
            number |= (byte & 127) << shift
            shift += 7
            if byte & 128:
                break
        numbers.append(number % 2**32)
    if any(rest):
        raise DamagedError
    return numbers


def _page(words: list[int], at: int, length: int) -> tuple[list[int], int]:
    """(the integers of the page at this word, the number of the word after it)."""
    description = at + words[at]
    if description <= at:
        raise DamagedError
    n_bytes, after = words[description], description + 1
    if after + (n_bytes + 3) // 4 > len(words):
        raise DamagedError
    text = b"".join(word.to_bytes(4, "little") for word in words[after : after + (n_bytes + 3) // 4])[:n_bytes]
    after += (n_bytes + 3) // 4
    bitmap, after = words[after], after + 1
    exceptions: dict[int, list[int]] = {}
    n_exceptions = 0
    for bits in range(2, WORD + 1):
        if bitmap >> (bits - 1) & 1:
            n, after = words[after], after + 1
            n_exceptions += n
            groups, others = divmod(n, GROUP)
            n_words = 4 * bits * groups + (others * bits + WORD - 1) // WORD
            if n_exceptions > length or after + n_words > len(words):
                raise DamagedError
            exceptions[bits] = [x for k in range(groups) for x in _group(words, after + 4 * bits * k, bits)]
            tail = words[after + 4 * bits * groups : after + n_words]
            line = sum(word << WORD * k for k, word in enumerate(tail))
            exceptions[bits] += [line >> bits * k & (1 << bits) - 1 for k in range(others)]
            after += n_words
    numbers, packed = [], at + 1
    for _ in range(length // BLOCK):
        bits, n, text = text[0], text[1], text[2:]
        if bits > WORD or packed + 8 * bits > description:
            raise DamagedError
        block = _group(words, packed, bits) + _group(words, packed + 4 * bits, bits)
        packed += 8 * bits
        if n:
            missing, text = text[0] - bits, text[1:]
            if not 1 <= missing <= WORD - bits or len(text) < n:
                raise DamagedError
            for place in text[:n]:
                block[place] |= (1 if missing == 1 else exceptions.get(missing, []).pop(0)) << bits
            text = text[n:]
        numbers += [number % 2**32 for number in block]
    return numbers, after


def _group(words: list[int], at: int, bits: int) -> list[int]:
    """The 128 integers of `bits` bits each that begin at this word."""
    lanes = [sum(words[at + LANES * k + lane] << WORD * k for k in range(bits)) for lane in range(LANES)]
    return [lanes[i % LANES] >> bits * (i // LANES) & (1 << bits) - 1 for i in range(GROUP)]
