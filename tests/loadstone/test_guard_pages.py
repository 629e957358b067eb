"""Our decoders stay in their memory whatever a stream says: what lies beyond it is a page that cannot be touched."""

import random
import signal
import zlib
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from loadstone.codecs import lz4
from loadstone.codecs.deflate import inflate
from tests.loadstone import test_lz4
from tests.loadstone.guarded import (
    FIXED,
    Arena,
    Bits,
    cases,
    flipped,
    packed,
    run_cases,
    some_bytes,
    some_stream,
    survive,
)

STATE = inflate.memory()
ROOM = 1 << 18  # bytes of an arena, of which a result may have all but the slack
CASES, SIZES = cases(3_000), 64


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


def expected(stream: bytes) -> tuple[bytes, bool]:
    """What zlib gives of it, before it finds it damaged if it does, and whether that is all."""
    unpacker, parts = zlib.decompressobj(-15), []
    try:
        whole = unpacker.decompress(stream[2:])
        return whole, unpacker.eof
    except zlib.error:
        unpacker = zlib.decompressobj(-15)
    try:
        for at in range(2, len(stream)):
            parts.append(unpacker.decompress(stream[at : at + 1]))
    except zlib.error:
        pass
    return b"".join(parts), False


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


def furthest_read(less: int, block: bool = False) -> list[str]:
    """Rounds of ROUND_BITS from the end of a stream on, of which the last ends with a length that needs care."""
    bits = Bits()
    bits.put(0x9C78, 16)
    codes = _codes(bits, not block)
    _up_to_care(bits, codes)
    size = bits.n // 8
    for last in [False] * (inflate.ROUNDS - 1) + [True]:
        before = bits.n
        bits.symbol(codes[0], 65)
        bits.symbol(codes[0], 66)
        if last and block:
            bits.symbol(codes[0], 256)
            _codes(bits, True)
        else:
            bits.match(codes, (26, 0) if last else (27, 31), (24, 0))
        assert last or bits.n - before == inflate.ROUND_BITS
    stream = bits.bytes()[: size + inflate.IN_SLACK]
    piece = Piece(stream, size, 100_000, False, stream[size:])
    assert guarded([piece], True, in_slack=inflate.IN_SLACK - less) == [None]
    return ["the furthest read"]


def block_behind_the_end(number: int) -> list[str]:
    """As many rounds, but a block begins then, of which no more may be read."""
    return furthest_read(0, block=True)


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


@pytest.mark.parametrize(
    ("case", "n"), [("inflate_case", CASES), ("alignment_case", CASES // 200), ("block_behind_the_end", 1)]
)
def test_nothing_beyond_the_slack_is_touched(case: str, n: int, tmp_path: Path) -> None:
    survive(f"{__name__}:{case}", n, tmp_path)


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


def lz4_longest_case(number: int) -> list[str]:
    """Sequences that read and write as much as rounds can, to any end of the chunk and of the result."""
    sequence = bytes([lz4.MOST_LITERALS << 4 | lz4.MOST_MATCH - lz4.LEAST_MATCH, *range(lz4.MOST_LITERALS), 1, 0])
    far = 3 * lz4.ROUNDS_OUT
    ends = [(n, far) for n in range(2 * lz4.ROUNDS_IN)] + [(far, n) for n in range(1, 2 * lz4.ROUNDS_OUT)]
    for n_stream, plain in ends:
        stream = (sequence * far)[:n_stream]
        head = bytes([lz4.VERSION, lz4.LZ4_VERSION, lz4.LZ4 << lz4.FORMAT, 1])
        sizes = np.array([plain, plain, lz4.HEAD + 8 + n_stream, lz4.HEAD + 4, n_stream], "<u4").tobytes()
        assert test_lz4.guarded(head + sizes + stream, plain, True)[0] == (lz4.DONE if n_stream == plain else lz4.BAD)
    return ["the longest sequences"]


def lz4_beyond_case(number: int) -> list[str]:
    """Chunks of which a stream, stored bytes or where they begin would be up to four bytes beyond the end."""
    head = bytes([lz4.VERSION, lz4.LZ4_VERSION, lz4.LZ4 << lz4.FORMAT, 1])

    def refused(plain: int, block: int, body: bytes) -> bool:
        sizes = np.array([plain, block, lz4.HEAD + len(body)], "<u4").tobytes()
        return test_lz4.guarded(head + sizes + body, plain, True)[0] == lz4.BAD

    for n in range(8, 2 * lz4.ROUNDS_IN):
        more = n - lz4.MORE
        token = bytes([n << 4]) if more < 0 else bytes([lz4.MORE << 4, *[255] * (more // 255), more % 255])
        for stream in (token + bytes(n), bytes(n)):
            body = np.array([lz4.HEAD + 4, len(stream)], "<u4").tobytes() + stream
            assert not refused(n, n, body)
            for less in range(1, 5):
                assert refused(n, n, body[:-less])
                assert refused(n, n, np.array([len(body) + lz4.HEAD - 4 + less], "<u4").tobytes() + body[4:])
                assert refused(4 * n, 4, np.array([lz4.HEAD + 4] * n, "<u4").tobytes()[:-less])
    return ["beyond the end"]


@pytest.mark.parametrize("case", ["lz4_longest_case", "lz4_beyond_case"])
def test_the_last_byte_of_a_chunk_is_the_last_that_is_read(case: str, tmp_path: Path) -> None:
    survive(f"{__name__}:{case}", 1, tmp_path)
