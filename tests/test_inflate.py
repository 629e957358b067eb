"""Our inflate gives what zlib's gives, whatever made the stream, says of a damaged one that it is damaged, and stays in
its memory whatever the stream says."""

import hashlib
import random
import signal
import zlib
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loaders.native import blosc, huffman, inflate, kernel, lz4, words
from tests.contents import contents
from tests.guarded import (
    FIXED,
    Arena,
    Bits,
    expected,
    flipped,
    packed,
    run_cases,
    some_bytes,
    some_stream,
    survive,
)

STRATEGIES = [zlib.Z_DEFAULT_STRATEGY, zlib.Z_FILTERED, zlib.Z_HUFFMAN_ONLY, zlib.Z_RLE, zlib.Z_FIXED]
STATE = inflate.memory()
ROOM = 1 << 18  # bytes of an arena, of which a result may have all but the slack
CASES, SIZES = 3_000, 64  # that a test runs by default


def inflated(streams: list[bytes], wanted: int, is_head: bool = False) -> tuple[int, list[bytes]]:
    """The number of the one that is damaged, or -1; and what the streams hold."""
    results = np.zeros((len(streams), wanted), np.uint8)
    damaged = inflate.inflate_each(inflate.hold(streams, wanted), *STATE, wanted, is_head, results)
    return damaged, [row.tobytes() for row in results]


def deflated(raw: bytes, level: int = 4, strategy: int = zlib.Z_DEFAULT_STRATEGY, window: int = 15) -> bytes:
    packer = zlib.compressobj(level, zlib.DEFLATED, window, 9, strategy)
    return packer.compress(raw) + packer.flush()


@settings(max_examples=300)
@given(
    arrays=st.lists(contents(), min_size=1, max_size=5),
    level=st.integers(0, 9),
    strategy=st.sampled_from(STRATEGIES),
    window=st.integers(9, 15),
    share=st.floats(0, 1),
)
def test_any_stream_and_any_head_of_it(
    arrays: list[np.ndarray], level: int, strategy: int, window: int, share: float
) -> None:
    wanted = min(array.nbytes for array in arrays)
    raws = [array.tobytes()[:wanted] for array in arrays]
    streams = [deflated(raw, level, strategy, window) for raw in raws]
    assert inflated(streams, wanted) == (-1, raws)
    head = int(share * wanted)
    assert inflated(streams, head, is_head=True) == (-1, [raw[:head] for raw in raws])


@settings(max_examples=300)
@given(array=contents(), level=st.integers(0, 9), data=st.data())
def test_what_zlib_refuses_is_not_taken_for_whole(array: np.ndarray, level: int, data: st.DataObject) -> None:
    raw = array.tobytes()
    stream = bytearray(deflated(raw, level))
    for _ in range(data.draw(st.integers(1, 3))):
        stream[data.draw(st.integers(0, len(stream) - 5))] ^= data.draw(st.integers(1, 255))
    cut = data.draw(st.integers(2, len(stream)))
    damaged, (found,) = inflated([bytes(stream[:cut])], len(raw))
    try:
        expected = zlib.decompressobj(-15).decompress(bytes(stream[2:cut]), len(raw) + 1)
    except zlib.error:
        expected = None
    if damaged < 0:
        assert expected == found or zlib.adler32(found) != zlib.adler32(raw)


@pytest.mark.parametrize("wanted", [99, 101])
def test_a_stream_of_another_length(wanted: int) -> None:
    assert inflated([deflated(bytes(100))], wanted)[0] == 0


@pytest.mark.parametrize(
    ("module", "others"),
    [
        (huffman, [words]),
        (lz4, [words]),
        (inflate, [words, huffman]),
        (blosc, [words]),
        (kernel, [words, huffman, inflate, lz4, blosc]),
    ],
    ids=["huffman", "lz4", "inflate", "blosc", "kernel"],
)
def test_what_is_compiled_with_others_says_of_which(module: ModuleType, others: list[ModuleType]) -> None:
    """Numba compiles a function anew when its own file has changed; others' become part of it all the same."""
    found = hashlib.sha256(b"".join(Path(other.__file__).read_bytes() for other in others)).hexdigest()[:16]
    assert found == module.BUILT_ON, f"put {found} into {module.__name__}, or numba runs what it compiled before"


def test_the_damaged_one_of_several_is_named() -> None:
    good = deflated(np.arange(5_000).tobytes())
    assert inflated([good, good[:-9], good], 40_000)[0] == 1


class Piece(NamedTuple):
    """What a slot is given: the first `size` bytes of a stream."""

    stream: bytes
    size: int
    wanted: int
    is_head: bool
    behind: bytes = b""  # what lies in the slack


@cache
def arenas() -> tuple[list[Arena], list[Arena], list[Arena]]:
    """Of each slot: for the stream, for the result, and where it rests."""
    return tuple([Arena(ROOM) for _ in range(inflate.SLOTS)] for _ in range(3))


def guarded(
    pieces: list[Piece], at_end: bool, in_slack: int = inflate.IN_SLACK, out_slack: int = inflate.OUT_SLACK
) -> list[bytes | None]:
    """What is inflated, as the loader does it, between guard pages; None for what is damaged."""
    found, held, results, coming = [None] * len(pieces), [-1] * inflate.SLOTS, [None] * inflate.SLOTS, 0
    while True:
        for slot, (streams, outs, rests) in enumerate(zip(*arenas(), strict=True)):
            while held[slot] < 0 and coming < len(pieces):
                stream, size, wanted, is_head, behind = pieces[coming]
                memory = streams.take(size + in_slack, at_end)
                slack = behind[:in_slack].ljust(in_slack, b"\0")
                memory[:] = np.frombuffer(stream[:size] + slack, np.uint8)
                results[slot] = outs.take(wanted + out_slack, at_end)
                addresses = memory.ctypes.data, size, results[slot].ctypes.data, wanted
                if inflate.begin(*STATE, slot, *addresses, is_head):
                    held[slot] = coming
                coming += 1
            if held[slot] < 0:
                inflate.rest(*STATE[:2], slot, rests.take(inflate.WORD, at_end).ctypes.data)
        if max(held) < 0:
            return found
        slot, status = inflate.run(*STATE)
        if status == inflate.DONE:
            found[held[slot]] = results[slot][: pieces[held[slot]].wanted].tobytes()
        held[slot] = -1


def inflate_case(number: int) -> list[str]:
    """Some streams in turn, whole, of another length, heads, and heads that are cut; says of which kind they were."""
    rng = random.Random(number)
    kinds, pieces, answers = [], [], []
    for _ in range(rng.randint(1, 5)):
        kind, stream = some_stream(rng)
        answer, is_whole = expected(stream)
        answer = answer[: ROOM - inflate.OUT_SLACK]
        ask = rng.choice(["whole", "whole", "longer", "shorter", "head", "cut head"])
        wanted, size = len(answer), len(stream)
        if ask in ("longer", "shorter"):
            wanted = max(0, wanted + rng.randint(1, 300) * (1 if ask == "longer" else -1))
        if "head" in ask:
            wanted = rng.randint(0, wanted)
        if ask == "cut head":
            size = rng.randint(0, size)
        wanted = min(wanted, ROOM - inflate.OUT_SLACK)
        behind = rng.choice([stream[size:], rng.randbytes(inflate.IN_SLACK), b"", b"\xff" * inflate.IN_SLACK])
        pieces.append(Piece(stream, size, wanted, "head" in ask, behind))
        answers.append((answer, is_whole))
        kinds.append(f"{kind}, {ask}")
    at_end = rng.random() < 0.6
    for piece, (answer, is_whole), found in zip(pieces, answers, guarded(pieces, at_end), strict=True):
        if not piece.is_head:
            assert found == (answer if is_whole and piece.wanted == len(answer) else None)
        elif found is not None:
            shared = min(len(answer), piece.wanted)
            assert found[:shared] == answer[:shared]
            assert not is_whole or piece.wanted <= len(answer)
        else:
            assert not is_whole or piece.size < len(piece.stream)
    return [f"{kind}, {'at the end' if at_end else 'at the start'}" for kind in kinds]


def alignment_case(number: int) -> list[str]:
    """A stream and a result of every length modulo 64, between which and a guard page is the slack alone."""
    rng = random.Random(number)
    raw = some_bytes(rng)[:5_000]
    good = packed(rng, raw)
    for stream in (good, flipped(rng, good)):
        answer, is_whole = expected(stream)
        for more in range(SIZES):
            longer = stream + bytes(more)
            whole = Piece(longer, len(longer), len(answer), False)
            head = Piece(longer, len(longer), max(0, len(answer) - more), True)
            for at_end in (True, False):
                found, start = guarded([whole, head], at_end)
                assert found == (answer if is_whole else None)
                assert start == answer[: head.wanted] if is_whole else start in (None, answer[: head.wanted])
    return ["all lengths modulo 64"]


def _codes(bits: Bits, final: bool) -> tuple:
    """A set in which the longest codes that are in a table, and a longer one of each kind, are of use."""
    by_length = {
        1: [97],
        2: [285],
        3: [98],
        4: [99],
        5: [100],
        6: [101],
        7: [102],
        8: [103],
        10: [65, 66, 284],
        11: [67],
    }
    by_length |= {12: [104], 13: [105], 14: [106], 15: [283, 256]}
    lengths = [next((n for n, symbols in by_length.items() if symbol in symbols), 0) for symbol in range(286)]
    distances = [1, *range(2, 10), *[0] * 15, 10, 10]
    return bits.dynamic(lengths, distances, final)


def _up_to_care(bits: Bits, codes: tuple) -> int:
    """Bytes of which the last is a literal that needs care and ends a byte: `run` looks where the slot is then."""
    bits.symbol(codes[0], 97)
    for _ in range(20):
        bits.match(codes, (28, 0), (0, 0))
    pad = -(bits.n + codes[0][67][1]) % 8
    for _ in range(pad):
        bits.symbol(codes[0], 97)
    bits.symbol(codes[0], 67)
    return 1 + 20 * 258 + pad + 1


def furthest_read(less: int) -> list[str]:
    """Rounds of ROUND_BITS from the end of a stream on, of which the last ends with a length that needs care."""
    bits = Bits()
    bits.put(0x9C78, 16)
    codes = _codes(bits, True)
    _up_to_care(bits, codes)
    size = bits.n // 8
    for last in [False] * (inflate.ROUNDS - 1) + [True]:
        before = bits.n
        bits.symbol(codes[0], 65)
        bits.symbol(codes[0], 66)
        bits.match(codes, (26, 0) if last else (27, 31), (24, 0))
        assert last or bits.n - before == inflate.ROUND_BITS
    stream = bits.bytes(size + inflate.IN_SLACK)
    piece = Piece(stream, size, 100_000, False, stream[size:])
    assert guarded([piece], True, in_slack=inflate.IN_SLACK - less) == [None]
    return ["the furthest read"]


def furthest_write(less: int) -> list[str]:
    """Rounds of ROUND_BYTES from the end of a result on."""
    bits = Bits()
    bits.put(0x9C78, 16)
    codes = _codes(bits, True)
    wanted = _up_to_care(bits, codes)
    for _ in range(inflate.ROUNDS):
        bits.symbol(codes[0], 97)
        bits.symbol(codes[0], 97)
        bits.match(codes, (28, 0), (0, 0))
    stream = bits.bytes()
    assert inflate.PACKS_WELL * len(stream) < wanted  # so that 32 bytes are copied at once
    assert guarded([Piece(stream, len(stream), wanted, False)], True, out_slack=inflate.OUT_SLACK - less) == [None]
    return ["the furthest write"]


@pytest.mark.parametrize("case", ["inflate_case", "alignment_case"])
def test_nothing_beyond_the_slack_is_touched(case: str, tmp_path: Path) -> None:
    survive(f"{__name__}:{case}", CASES if case == "inflate_case" else CASES // 200, tmp_path)


@pytest.mark.parametrize("case", ["furthest_read", "furthest_write"])
def test_the_last_byte_of_the_slack_is_needed(case: str, tmp_path: Path) -> None:
    assert run_cases(f"{__name__}:{case}", range(1), tmp_path).code == 0
    ended = run_cases(f"{__name__}:{case}", range(1, 2), tmp_path)
    assert ended.code in (-signal.SIGSEGV, -signal.SIGBUS), ended.said


@pytest.mark.parametrize("kind", ["fixed", "dynamic"])
def test_a_head_that_has_more_than_is_wanted_before_a_stored_block(kind: str) -> None:
    bits = Bits()
    bits.put(0x9C78, 16)
    if kind == "fixed":
        bits.put(1 << 1, 3)
    codes = FIXED if kind == "fixed" else _codes(bits, False)
    bits.symbol(codes[0], 97)
    for _ in range(10):
        bits.match(codes, (28, 0), (0, 0))
    bits.symbol(codes[0], 256)
    bits.stored(b"b" * 100, True)
    stream, raw = bits.bytes(), b"a" * 2_581 + b"b" * 100
    for wanted in (1, 2_000, 2_580, 2_581, 2_582, 2_680, 2_681):
        assert guarded([Piece(stream, len(stream), wanted, True)], True) == [raw[:wanted]]


@pytest.mark.parametrize("is_head", [False, True])
def test_a_stored_block_with_a_wrong_complement(is_head: bool) -> None:
    bits = Bits()
    bits.put(0x9C78, 16)
    bits.stored(bytes(50), True, complement=0xFFFE)
    assert inflated([bits.bytes()], 40 if is_head else 50, is_head)[0] == 0


def test_only_heads_of_zlib_that_zlib_takes() -> None:
    """Of DEFLATE, with a window of 32 KiB at most, no dictionary, and a check that is right."""
    body = zlib.compress(b"")[2:]
    for head in range(1 << 16):
        stream = head.to_bytes(2, "little") + body
        if head & 0x0F == 8 or head % 31 == 0:
            try:
                taken = zlib.decompress(stream) == b""
            except zlib.error:
                taken = False
            assert (inflated([stream], 0)[0] < 0) == taken
