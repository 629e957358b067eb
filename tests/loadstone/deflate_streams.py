"""DEFLATE streams in the zlib format, valid and malformed, for the tests of the decoder."""

import random
import zlib

from loadstone.codecs.deflate.huffman import CODE_ORDER, DISTANCE_BASE, DISTANCE_EXTRA, LENGTH_BASE, LENGTH_EXTRA
from tests.loadstone.contents import flipped, some_bytes


class Bits:
    """Writes a DEFLATE stream bit by bit."""

    def __init__(self) -> None:
        self.word, self.n = 0, 0

    def put(self, value: int, n: int) -> None:
        value, n = int(value), int(n)
        self.word |= (value & ((1 << n) - 1)) << self.n
        self.n += n

    def symbol(self, codes: dict[int, tuple[int, int]], symbol: int) -> None:
        self.put(*codes[symbol])

    def stored(self, raw: bytes, final: bool, claimed: int | None = None, complement: int = 0xFFFF) -> None:
        """Writes a stored block. claimed: the length stated in its header (None: the true one).

        complement: the length is stated a second time, XORed with this number; 0xFFFF is correct.
        """
        n = len(raw) if claimed is None else claimed
        self.put(final, 3)
        self.n = -(-self.n // 8) * 8
        self.put(n, 16)
        self.put(n ^ complement, 16)
        self.put(int.from_bytes(raw, "little"), 8 * len(raw))

    def dynamic(
        self,
        lengths: list[int],
        distances: list[int],
        final: bool,
        encoded: list[tuple[int, int]] | None = None,
        n_short: int = 13,
    ) -> tuple[dict[int, tuple[int, int]], dict[int, tuple[int, int]]]:
        """Writes the header of a dynamic block. Returns the codes of literals and lengths, and of distances.

        lengths, distances: the code lengths of all symbols. encoded: the code lengths as (symbol, value of the extra
        bits) pairs (None: without repetitions). n_short: how many of the 19 symbols for code lengths get codes of 4
        bits; the others get 5. The set of these codes is complete only for 13.
        """
        self.put(final | 2 << 1, 3)
        self.put(len(lengths) - 257, 5)
        self.put(len(distances) - 1, 5)
        self.put(15, 4)
        packed = [4] * n_short + [5] * (19 - n_short)
        for symbol in CODE_ORDER:
            self.put(packed[symbol], 3)
        codes = codes_of(packed)
        for symbol, extra in encoded or [(length, 0) for length in lengths + distances]:
            self.symbol(codes, symbol)
            self.put(extra, {16: 2, 17: 3, 18: 7}.get(symbol, 0))
        return codes_of(lengths), codes_of(distances)

    def match(self, codes: tuple, length: tuple[int, int], distance: tuple[int, int]) -> None:
        """Writes a match. length, distance: (index of the code, from 0; value of its extra bits)."""
        self.symbol(codes[0], 257 + length[0])
        self.put(length[1], LENGTH_EXTRA[length[0]] if length[0] < len(LENGTH_EXTRA) else 0)
        self.symbol(codes[1], distance[0])
        self.put(distance[1], DISTANCE_EXTRA[distance[0]] if distance[0] < len(DISTANCE_EXTRA) else 0)

    def bytes(self) -> bytes:
        return self.word.to_bytes(-(-self.n // 8), "little")


def codes_of(lengths: list[int]) -> dict[int, tuple[int, int]]:
    """The canonical Huffman codes of the symbols whose code length is not 0, by symbol.

    Each is (code, number of bits). The first bit of a code is its lowest.
    """
    codes, code = {}, 0
    for length in range(1, 16):
        for symbol in (symbol for symbol, n in enumerate(lengths) if n == length):
            codes[symbol] = int(f"{code % (1 << length):0{length}b}"[::-1], 2), length
            code += 1
        code <<= 1
    return codes


FIXED = codes_of([8] * 144 + [9] * 112 + [7] * 24 + [8] * 8), codes_of([5] * 32)
CODE_FLAWS = [
    "incomplete", "oversubscribed", "incomplete lengths", "oversubscribed lengths", "no end of block",
    "too many symbols", "too many distances", "repeats too often", "repeats nothing",
]  # fmt: skip
FLAWS = [
    *CODE_FLAWS, "stored complement", "stored too long", "third kind", "distance too far", "distance 30", "symbol 286",
    "cut", "flipped",
]  # fmt: skip


def _complete(rng: random.Random, symbols: list[int], n: int) -> list[int]:
    """Code lengths of `n` symbols: of a complete set of codes for `symbols`, and 0 for the others. Often up to 15."""
    leaves = [1, 1]
    deep = rng.random()
    while len(leaves) < len(symbols):
        at = max(range(len(leaves)), key=lambda i: leaves[i] * (leaves[i] < 15)) if rng.random() < deep else 0
        at = at if leaves[at] < 15 else leaves.index(min(leaves))
        leaves[at : at + 1] = [leaves[at] + 1] * 2
        rng.shuffle(leaves)
    lengths = [0] * n
    for symbol, length in zip(symbols, leaves, strict=False):
        lengths[symbol] = length
    return lengths


def some_codes(rng: random.Random, bits: Bits, final: bool, flaw: str) -> tuple:
    """Writes the header of a dynamic block with random codes. flaw: one of CODE_FLAWS, else none. Returns the codes."""
    n = {"too many symbols": rng.choice([287, 288])}.get(flaw, rng.randint(258, 286))
    n_distances = {"too many distances": rng.choice([31, 32])}.get(flaw, rng.randint(2, 30))
    symbols = rng.sample(range(256), rng.randint(1, 60)) + rng.sample(range(257, n), rng.randint(1, min(20, n - 257)))
    lengths = _complete(rng, [*symbols, *([] if flaw == "no end of block" else [256])], n)
    distances = _complete(rng, rng.sample(range(n_distances), rng.randint(2, n_distances)), n_distances)
    if flaw in ("incomplete", "oversubscribed"):
        changed = rng.choice([lengths, distances]) if max(distances) > 1 else lengths
        at = rng.choice([symbol for symbol, length in enumerate(changed) if length > 1 and symbol != 256])
        changed[at] += 1 if flaw == "incomplete" and changed[at] < 15 else -1
    encoded = None
    if flaw == "repeats too often":
        encoded = [(length, 0) for length in (lengths + distances)[: -rng.randint(1, 2)]]
        encoded.append((rng.choice([17, 18]), 127))
    if flaw == "repeats nothing":
        encoded = [(16, rng.randint(0, 3)), *((length, 0) for length in lengths + distances)]
    n_short = {"incomplete lengths": 12, "oversubscribed lengths": 14}.get(flaw, 13)
    return bits.dynamic(lengths, distances, final, encoded, n_short)


def built(rng: random.Random) -> tuple[str, bytes]:
    """(flaw, or "built" if there is none; a stream of one to four random blocks that zlib did not write)."""
    flaw = rng.choice(FLAWS) if rng.random() < 0.7 else ""
    bits, out, n_blocks = Bits(), 0, rng.randint(1, 4)
    bits.put(0x9C78, 16)
    flawed = rng.randrange(n_blocks)
    for i in range(n_blocks):
        final, block_flaw = i == n_blocks - 1, flaw if i == flawed else ""
        kind = rng.choice(["stored", "fixed", "dynamic"])
        if block_flaw == "third kind":
            bits.put(final | 3 << 1, 3)
        if kind == "stored" or block_flaw.startswith("stored"):
            raw = rng.randbytes(rng.choice([0, 1, 7, 300]))
            claimed = rng.choice([len(raw) + 1, 60_000, 65_535]) if block_flaw == "stored too long" else None
            complement = rng.randrange(0xFFFF) if block_flaw == "stored complement" else 0xFFFF
            bits.stored(raw, final, claimed, complement)
            out += len(raw)
            continue
        if kind == "fixed":
            bits.put(final | 1 << 1, 3)
        codes = FIXED if kind == "fixed" else some_codes(rng, bits, final, block_flaw)
        out += _symbols(rng, bits, codes, out, block_flaw)
    stream = bits.bytes() + rng.randbytes(4)
    if flaw == "cut":
        stream = stream[: rng.randrange(len(stream))]
    return flaw or "built", flipped(rng, stream) if flaw == "flipped" else stream


def _symbols(rng: random.Random, bits: Bits, codes: tuple, before: int, flaw: str) -> int:
    """Writes the symbols of a block. Returns the number of bytes that they decode to.

    before: the number of bytes to which the earlier blocks decode, to which matches may refer back.
    """
    literals = [symbol for symbol in codes[0] if symbol < 256]
    lengths = [symbol - 257 for symbol in codes[0] if 256 < symbol < 286]
    share, n, out = rng.random(), rng.choice([0, 3, 90, 300]), before
    longest = rng.random() < 0.3
    for _ in range(n):
        usable = [symbol for symbol in codes[1] if symbol < 30 and DISTANCE_BASE[symbol] <= out]
        if literals and (rng.random() < share or not usable or not lengths):
            bits.symbol(codes[0], rng.choice(literals))
            out += 1
        elif usable and lengths:
            length, distance = max(lengths) if longest else rng.choice(lengths), rng.choice(usable)
            more_length = rng.randrange(1 << LENGTH_EXTRA[length])
            more_distance = rng.randint(0, min((1 << DISTANCE_EXTRA[distance]) - 1, out - DISTANCE_BASE[distance]))
            bits.match(codes, (length, more_length), (distance, more_distance))
            out += LENGTH_BASE[length] + more_length
    beyond = {"distance too far": [s for s in codes[1] if s < 30 and DISTANCE_BASE[s] > out], "distance 30": [30, 31]}
    wrong = [symbol for symbol in beyond.get(flaw, []) if symbol in codes[1]]
    if wrong and lengths:
        bits.match(codes, (rng.choice(lengths), 0), (rng.choice(wrong), 0))
    if flaw == "symbol 286" and 286 in codes[0]:
        bits.symbol(codes[0], rng.choice([286, 287]))
    if 256 in codes[0]:
        bits.symbol(codes[0], 256)
    return out - before


def packed(rng: random.Random, raw: bytes) -> bytes:
    """`raw` compressed by zlib in one to three parts with different settings; empty stored blocks separate them."""
    window, parts, n = rng.randint(9, 15), [], rng.randint(1, 3)
    for i in range(n):
        strategy = rng.choice([zlib.Z_DEFAULT_STRATEGY, zlib.Z_HUFFMAN_ONLY, zlib.Z_RLE, zlib.Z_FIXED])
        packer = zlib.compressobj(rng.randint(0, 9), zlib.DEFLATED, -window, rng.randint(1, 9), strategy)
        part = packer.compress(raw[len(raw) * i // n : len(raw) * (i + 1) // n])
        parts.append(part + packer.flush(zlib.Z_FINISH if i == n - 1 else zlib.Z_FULL_FLUSH))
    return b"".join([b"\x78\x9c", *parts, zlib.adler32(raw).to_bytes(4, "big")])


def some_stream(rng: random.Random) -> tuple[str, bytes]:
    """(kind, stream): "packed", "random", "flipped" (packed, then damaged), or the kind that `built` returns."""
    kind = rng.choice(["built", "built", "packed", "flipped", "random"])
    if kind == "built":
        return built(rng)
    if kind == "random":  # the first bits select a compressed block
        return kind, b"\x78\x9c" + bytes([rng.randrange(256) & ~6 | rng.choice([2, 4])]) + rng.randbytes(600)
    stream = packed(rng, some_bytes(rng))
    return kind, stream if kind == "packed" else flipped(rng, stream)
