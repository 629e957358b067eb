"""Our inflate neither reads nor writes beyond its buffers and their slack, which end or begin at guard pages."""

import random
import signal
import zlib
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from loadstone.codecs.deflate import inflate
from tests.loadstone.contents import flipped, some_bytes
from tests.loadstone.deflate_streams import FIXED, Bits, packed, some_stream
from tests.loadstone.guarded import Arena, cases, run_cases, survive

STATE = inflate.memory()
ROOM = 1 << 18  # bytes of an arena: the longest result and its slack
CASES, SIZES = cases(3_000), 64


class Piece(NamedTuple):
    """Work for one slot of the decoder: the first `size` bytes of a stream, to be inflated to `wanted` bytes.

    is_head: whether only the beginning of the decoded stream is wanted.
    """

    stream: bytes
    size: int
    wanted: int
    is_head: bool
    behind: bytes = b""  # the content of the slack


@cache
def arenas() -> tuple[list[Arena], list[Arena], list[Arena]]:
    """Three lists, each with an arena for each slot: for the stream, for the result, and for an idle slot."""
    return tuple([Arena(ROOM) for _ in range(inflate.SLOTS)] for _ in range(3))


def guarded(
    pieces: list[Piece], at_end: bool, in_slack: int = inflate.IN_SLACK, out_slack: int = inflate.OUT_SLACK
) -> list[bytes | None]:
    """Inflates pieces as the loader does, with every buffer next to a guard page. Returns the results, None if damaged.

    at_end: whether guard pages follow the buffers, or else precede them. in_slack, out_slack: the number of accessible
    bytes behind the stream and behind the result.
    """
    inflated, piece_of, results, n_begun = [None] * len(pieces), [-1] * inflate.SLOTS, [None] * inflate.SLOTS, 0
    while True:
        for slot, (streams, outs, rests) in enumerate(zip(*arenas(), strict=True)):
            while piece_of[slot] < 0 and n_begun < len(pieces):
                stream, size, wanted, is_head, behind = pieces[n_begun]
                memory = streams.take(size + in_slack, at_end)
                slack = behind[:in_slack].ljust(in_slack, b"\0")
                memory[:] = np.frombuffer(stream[:size] + slack, np.uint8)
                results[slot] = outs.take(wanted + out_slack, at_end)
                addresses = memory.ctypes.data, size, results[slot].ctypes.data, wanted
                if inflate.begin(*STATE, slot, *addresses, is_head):
                    piece_of[slot] = n_begun
                n_begun += 1
            if piece_of[slot] < 0:
                inflate.rest(*STATE[:2], slot, rests.take(inflate.WORD, at_end).ctypes.data)
        if max(piece_of) < 0:
            return inflated
        slot, status = inflate.run(*STATE)
        if status == inflate.DONE:
            inflated[piece_of[slot]] = results[slot][: pieces[piece_of[slot]].wanted].tobytes()
        piece_of[slot] = -1


def expected(stream: bytes) -> tuple[bytes, bool]:
    """(the bytes that zlib inflates before any damage; whether the stream is complete and undamaged)."""
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
    """Inflates one to five random streams: in full, to a wrong length, or only the beginning. Returns their kinds."""
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
    for piece, (answer, is_whole), result in zip(pieces, answers, guarded(pieces, at_end), strict=True):
        if not piece.is_head:
            assert result == (answer if is_whole and piece.wanted == len(answer) else None)
        elif result is not None:
            shared = min(len(answer), piece.wanted)
            assert result[:shared] == answer[:shared]
            assert not is_whole or piece.wanted <= len(answer)
        else:
            assert not is_whole or piece.size < len(piece.stream)
    return [f"{kind}, {'at the end' if at_end else 'at the start'}" for kind in kinds]


def alignment_case(number: int) -> list[str]:
    """Inflates streams and results of every length modulo 64, with only the slack between buffers and guard pages."""
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
                result, start = guarded([whole, head], at_end)
                assert result == (answer if is_whole else None)
                assert start == answer[: head.wanted] if is_whole else start in (None, answer[: head.wanted])
    return ["all lengths modulo 64"]


def _codes(bits: Bits, final: bool) -> tuple:
    """Writes the header of a dynamic block. Returns its codes of literals and lengths, and of distances.

    They include the longest codes that fit in the decoder's tables, and codes that are longer.
    """
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


def _up_to_slow_path(bits: Bits, codes: tuple) -> int:
    """Writes symbols, the last of which is decoded on the slow path and ends at a whole byte.

    After the slow path, `run` checks the position of the slot. Returns the number of bytes that the symbols decode to.
    """
    bits.symbol(codes[0], 97)
    for _ in range(20):
        bits.match(codes, (28, 0), (0, 0))
    pad = -(bits.n + codes[0][67][1]) % 8
    for _ in range(pad):
        bits.symbol(codes[0], 97)
    bits.symbol(codes[0], 67)
    return 1 + 20 * 258 + pad + 1


def furthest_read(less: int, block: bool = False) -> list[str]:
    """Makes the decoder read as far beyond the end of a stream as it can.

    Rounds of ROUND_BITS begin at the end of the stream. The last one ends with a length that takes the slow path; or,
    if `block`, a new block follows. less: the number of bytes by which the slack is too short.
    """
    bits = Bits()
    bits.put(0x9C78, 16)
    codes = _codes(bits, not block)
    _up_to_slow_path(bits, codes)
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
    """Like `furthest_read`, but a block begins after the rounds. Its header must not be read beyond the slack."""
    return furthest_read(0, block=True)


def furthest_write(less: int) -> list[str]:
    """Makes the decoder write as far beyond the end of a result as it can: rounds of ROUND_BYTES begin at the end.

    less: the number of bytes by which the slack is too short.
    """
    bits = Bits()
    bits.put(0x9C78, 16)
    codes = _codes(bits, True)
    wanted = _up_to_slow_path(bits, codes)
    for _ in range(inflate.ROUNDS):
        bits.symbol(codes[0], 97)
        bits.symbol(codes[0], 97)
        bits.match(codes, (28, 0), (0, 0))
    stream = bits.bytes()
    assert inflate.PACKS_WELL * len(stream) < wanted  # so that matches are copied in steps of 32 bytes
    assert guarded([Piece(stream, len(stream), wanted, False)], True, out_slack=inflate.OUT_SLACK - less) == [None]
    return ["the furthest write"]


@pytest.mark.parametrize(
    ("case", "n"), [("inflate_case", CASES), ("alignment_case", CASES // 200), ("block_behind_the_end", 1)]
)
def test_memory_beyond_the_slack_is_not_touched(case: str, n: int, tmp_path: Path) -> None:
    survive(f"{__name__}:{case}", n, tmp_path)


@pytest.mark.parametrize("case", ["furthest_read", "furthest_write"])
def test_the_last_byte_of_the_slack_is_needed(case: str, tmp_path: Path) -> None:
    assert run_cases(f"{__name__}:{case}", range(1), tmp_path).code == 0
    ended = run_cases(f"{__name__}:{case}", range(1, 2), tmp_path)
    assert ended.code in (-signal.SIGSEGV, -signal.SIGBUS), ended.output


@pytest.mark.parametrize("kind", ["fixed", "dynamic"])
def test_a_prefix_that_ends_before_or_within_a_stored_block(kind: str) -> None:
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
