"""Memory between pages that cannot be touched, a child process that a touch ends, and hostile DEFLATE streams.

    python -m tests.loadstone.guarded tests.loadstone.test_guard_pages:inflate_case 0 100000

runs a test's cases by their numbers, and says how often each kind of case came. GUARD_CASES in the environment is how
many of them the tests run.
"""

import ctypes
import importlib
import mmap
import os
import random
import subprocess
import sys
import tempfile
import zlib
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np

from loadstone.codecs.deflate.huffman import CODE_ORDER, DISTANCE_BASE, DISTANCE_EXTRA, LENGTH_BASE, LENGTH_EXTRA

ROOT = Path(__file__).parents[2]
NO_ACCESS = 0


class Arena:
    """Memory between two guard pages."""

    def __init__(self, size: int) -> None:
        page, size = mmap.PAGESIZE, -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        held = np.frombuffer(mmap.mmap(-1, size + 2 * page), np.uint8)
        protect = ctypes.CDLL(None, use_errno=True).mprotect
        for guard in (held[:page], held[-page:]):
            if protect(ctypes.c_void_p(guard.ctypes.data), ctypes.c_size_t(page), NO_ACCESS):
                raise OSError(ctypes.get_errno(), "mprotect")
        self.memory = held[page:-page]

    def take(self, n: int, at_end: bool) -> np.ndarray:
        """`n` bytes that end where a guard page begins, or begin where one ends."""
        return self.memory[len(self.memory) - n :] if at_end else self.memory[:n]


class Ended(NamedTuple):
    """How a child ended: its exit code, or less than 0 the signal; the case that it was at, and what it said."""

    code: int
    case: str
    said: str


def run_cases(function: str, numbers: range, folder: Path) -> Ended:
    """Runs cases in a child: `function` is that of a module, "tests.test_x:case", and takes a case's number."""
    log = folder / "case"
    command = [
        sys.executable,
        "-m",
        "tests.loadstone.guarded",
        function,
        str(numbers.start),
        str(numbers.stop),
        str(log),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return Ended(done.returncode, log.read_text() if log.exists() else "none", done.stdout + done.stderr)


def cases(default: int) -> int:
    """How many a test runs."""
    return int(os.environ.get("GUARD_CASES", default))


def survive(function: str, n: int, folder: Path) -> None:
    """Fails with the case's number if a child of so many cases dies, or finds something else."""
    ended = run_cases(function, range(max(1, n)), folder)
    assert ended.code == 0, f"{function}({ended.case}): exit code {ended.code}\n{ended.said[-2_000:]}"


def main(name: str, start: str, stop: str, log: str = "") -> None:
    module, function = name.split(":")
    case, kinds = getattr(importlib.import_module(module), function), Counter()
    with open(log, "wb", buffering=0) if log else tempfile.TemporaryFile(buffering=0) as file:
        for number in range(int(start), int(stop)):
            os.pwrite(file.fileno(), f"{number:<20}".encode(), 0)  # before it runs: it may be the last
            kinds.update(case(number))
    for kind, n in sorted(kinds.items()):
        print(f"{n:>10,} {kind}")


class Bits:
    """A DEFLATE stream that is written by hand."""

    def __init__(self) -> None:
        self.word, self.n = 0, 0

    def put(self, value: int, n: int) -> None:
        value, n = int(value), int(n)
        self.word |= (value & ((1 << n) - 1)) << self.n
        self.n += n

    def symbol(self, codes: dict[int, tuple[int, int]], symbol: int) -> None:
        self.put(*codes[symbol])

    def stored(self, raw: bytes, final: bool, claimed: int | None = None, complement: int = 0xFFFF) -> None:
        """claimed: the length that the block says it has."""
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
        said: list[tuple[int, int]] | None = None,
        n_short: int = 13,
    ) -> tuple[dict[int, tuple[int, int]], dict[int, tuple[int, int]]]:
        """The head of a block, and its codes. said: how the lengths are said, if not one by one: (symbol, number).

        n_short: how many codes of lengths have 4 bits. The others have 5: of 13 the set is complete.
        """
        self.put(final | 2 << 1, 3)
        self.put(len(lengths) - 257, 5)
        self.put(len(distances) - 1, 5)
        self.put(15, 4)
        packed = [4] * n_short + [5] * (19 - n_short)
        for symbol in CODE_ORDER:
            self.put(packed[symbol], 3)
        codes = codes_of(packed)
        for symbol, number in said or [(length, 0) for length in lengths + distances]:
            self.symbol(codes, symbol)
            self.put(number, {16: 2, 17: 3, 18: 7}.get(symbol, 0))
        return codes_of(lengths), codes_of(distances)

    def match(self, codes: tuple, length: tuple[int, int], distance: tuple[int, int]) -> None:
        """Of each: the number of its code from 0 on, and the number behind it."""
        self.symbol(codes[0], 257 + length[0])
        self.put(length[1], LENGTH_EXTRA[length[0]] if length[0] < len(LENGTH_EXTRA) else 0)
        self.symbol(codes[1], distance[0])
        self.put(distance[1], DISTANCE_EXTRA[distance[0]] if distance[0] < len(DISTANCE_EXTRA) else 0)

    def bytes(self) -> bytes:
        return self.word.to_bytes(-(-self.n // 8), "little")


def codes_of(lengths: list[int]) -> dict[int, tuple[int, int]]:
    """Each symbol's code, its first bit the lowest, and length."""
    found, code = {}, 0
    for length in range(1, 16):
        for symbol in (symbol for symbol, its in enumerate(lengths) if its == length):
            found[symbol] = int(f"{code % (1 << length):0{length}b}"[::-1], 2), length
            code += 1
        code <<= 1
    return found


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
    """Lengths of a complete set of codes of these symbols, often with the longest that there can be."""
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
    """The head of a dynamic block, and its codes."""
    n = {"too many symbols": rng.choice([287, 288])}.get(flaw, rng.randint(258, 286))
    n_distances = {"too many distances": rng.choice([31, 32])}.get(flaw, rng.randint(2, 30))
    symbols = rng.sample(range(256), rng.randint(1, 60)) + rng.sample(range(257, n), rng.randint(1, min(20, n - 257)))
    lengths = _complete(rng, [*symbols, *([] if flaw == "no end of block" else [256])], n)
    distances = _complete(rng, rng.sample(range(n_distances), rng.randint(2, n_distances)), n_distances)
    if flaw in ("incomplete", "oversubscribed"):
        changed = rng.choice([lengths, distances]) if max(distances) > 1 else lengths
        at = rng.choice([symbol for symbol, length in enumerate(changed) if length > 1 and symbol != 256])
        changed[at] += 1 if flaw == "incomplete" and changed[at] < 15 else -1
    said = None
    if flaw == "repeats too often":
        said = [(length, 0) for length in (lengths + distances)[: -rng.randint(1, 2)]]
        said.append((rng.choice([17, 18]), 127))
    if flaw == "repeats nothing":
        said = [(16, rng.randint(0, 3)), *((length, 0) for length in lengths + distances)]
    n_short = {"incomplete lengths": 12, "oversubscribed lengths": 14}.get(flaw, 13)
    return bits.dynamic(lengths, distances, final, said, n_short)


def built(rng: random.Random) -> tuple[str, bytes]:
    """A stream of blocks of any kinds, and which flaw it has, if any."""
    flaw = rng.choice(FLAWS) if rng.random() < 0.7 else ""
    bits, out, n_blocks = Bits(), 0, rng.randint(1, 4)
    bits.put(0x9C78, 16)
    flawed = rng.randrange(n_blocks)
    for i in range(n_blocks):
        final, mine = i == n_blocks - 1, flaw if i == flawed else ""
        kind = rng.choice(["stored", "fixed", "dynamic"])
        if mine == "third kind":
            bits.put(final | 3 << 1, 3)
        if kind == "stored" or mine.startswith("stored"):
            raw = rng.randbytes(rng.choice([0, 1, 7, 300]))
            claimed = rng.choice([len(raw) + 1, 60_000, 65_535]) if mine == "stored too long" else None
            bits.stored(raw, final, claimed, rng.randrange(0xFFFF) if mine == "stored complement" else 0xFFFF)
            out += len(raw)
            continue
        if kind == "fixed":
            bits.put(final | 1 << 1, 3)
        codes = FIXED if kind == "fixed" else some_codes(rng, bits, final, mine)
        out += _symbols(rng, bits, codes, out, mine)
    stream = bits.bytes() + rng.randbytes(4)
    if flaw == "cut":
        stream = stream[: rng.randrange(len(stream))]
    return flaw or "built", flipped(rng, stream) if flaw == "flipped" else stream


def _symbols(rng: random.Random, bits: Bits, codes: tuple, before: int, flaw: str) -> int:
    """A block's symbols: how many bytes they are."""
    literals = [symbol for symbol in codes[0] if symbol < 256]
    lengths = [symbol - 257 for symbol in codes[0] if 256 < symbol < 286]
    share, n, out = rng.random(), rng.choice([0, 3, 90, 300]), before
    longest = rng.random() < 0.3
    for _ in range(n):
        fit = [symbol for symbol in codes[1] if symbol < 30 and DISTANCE_BASE[symbol] <= out]
        if literals and (rng.random() < share or not fit or not lengths):
            bits.symbol(codes[0], rng.choice(literals))
            out += 1
        elif fit and lengths:
            length, distance = max(lengths) if longest else rng.choice(lengths), rng.choice(fit)
            behind = rng.randrange(1 << LENGTH_EXTRA[length])
            far = rng.randint(0, min((1 << DISTANCE_EXTRA[distance]) - 1, out - DISTANCE_BASE[distance]))
            bits.match(codes, (length, behind), (distance, far))
            out += LENGTH_BASE[length] + behind
    beyond = {"distance too far": [s for s in codes[1] if s < 30 and DISTANCE_BASE[s] > out], "distance 30": [30, 31]}
    wrong = [symbol for symbol in beyond.get(flaw, []) if symbol in codes[1]]
    if wrong and lengths:
        bits.match(codes, (rng.choice(lengths), 0), (rng.choice(wrong), 0))
    if flaw == "symbol 286" and 286 in codes[0]:
        bits.symbol(codes[0], rng.choice([286, 287]))
    if 256 in codes[0]:
        bits.symbol(codes[0], 256)
    return out - before


def flipped(rng: random.Random, stream: bytes, first: int = 2) -> bytes:
    """With some bytes changed."""
    changed = bytearray(stream)
    for _ in range(rng.randint(1, 3)):
        if len(changed) > first:
            changed[rng.randrange(first, len(changed))] ^= rng.randint(1, 255)
    return bytes(changed)


def packed(rng: random.Random, raw: bytes) -> bytes:
    """By zlib, in parts of different levels and strategies, between which are empty stored blocks."""
    window, parts, n = rng.randint(9, 15), [], rng.randint(1, 3)
    for i in range(n):
        strategy = rng.choice([zlib.Z_DEFAULT_STRATEGY, zlib.Z_HUFFMAN_ONLY, zlib.Z_RLE, zlib.Z_FIXED])
        packer = zlib.compressobj(rng.randint(0, 9), zlib.DEFLATED, -window, rng.randint(1, 9), strategy)
        part = packer.compress(raw[len(raw) * i // n : len(raw) * (i + 1) // n])
        parts.append(part + packer.flush(zlib.Z_FINISH if i == n - 1 else zlib.Z_FULL_FLUSH))
    return b"".join([b"\x78\x9c", *parts, zlib.adler32(raw).to_bytes(4, "big")])


def some_bytes(rng: random.Random) -> bytes:
    """As counts and indices are, and as they are not."""
    made, n = np.random.default_rng(rng.getrandbits(32)), rng.choice([1, 40, 700, 9_000])
    kinds = made.geometric(0.5, n), np.cumsum(made.geometric(1 / 45, n)), made.integers(0, 256, n), np.zeros(n)
    return rng.choice(kinds).astype(rng.choice(["u1", "<i4"])).tobytes()


def some_stream(rng: random.Random) -> tuple[str, bytes]:
    """Of any kind, and of which."""
    kind = rng.choice(["built", "built", "packed", "flipped", "random"])
    if kind == "built":
        return built(rng)
    if kind == "random":  # the first bits say of which kind the block is
        return kind, b"\x78\x9c" + bytes([rng.randrange(256) & ~6 | rng.choice([2, 4])]) + rng.randbytes(600)
    stream = packed(rng, some_bytes(rng))
    return kind, stream if kind == "packed" else flipped(rng, stream)


if __name__ == "__main__":
    main(*sys.argv[1:])
