"""Our decoder of cellstream's frames neither reads nor writes beyond its buffers, which end or begin at guard pages."""

import random
import tempfile
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from loadstone.codecs import pfor
from tests.loadstone import csad
from tests.loadstone.contents import flipped
from tests.loadstone.guarded import Arena, cases, survive
from tests.loadstone.pfor_streams import decode_slowly

ROOM = 1 << 20  # bytes of an arena
CASES = cases(4_000)
WORD = 4  # bytes


@cache
def arenas() -> list[Arena]:
    """Three arenas: for the stream, for the integers, and for the exceptions."""
    return [Arena(ROOM) for _ in range(3)]


@cache
def streams() -> list[tuple[bytes, int, np.ndarray]]:
    """(stream, number of integers, the integers), the values of cells."""
    cells = csad.some_cells(np.random.default_rng(0), 200)
    with tempfile.TemporaryDirectory() as folder:
        frames = csad.frames(csad.write(Path(folder) / "a.csad", cells))
    ends = [WORD + int.from_bytes(frame[:WORD], "little") for frame, _ in frames]
    return [
        (frame[end:], n, cells.data[a : a + n])
        for (frame, n), end, a in zip(frames, ends, cells.indptr, strict=False)
        if n
    ]


@cache
def short_streams() -> list[tuple[bytes, int, np.ndarray]]:
    """Those that the slow decoder decodes soon."""
    return [stream for stream in streams() if stream[1] < 5_000]


def guarded(stream: bytes, n: int, at_end: bool) -> tuple[bool, np.ndarray]:
    """Decodes a stream; guard pages follow all buffers if `at_end`, else precede them. Returns (valid, integers)."""
    sizes = len(stream) + pfor.IN_SLACK, WORD * n, WORD * (n + pfor.PACKED * pfor.MOST_BITS)
    packed, numbers, extra = (arena.take(size, at_end) for arena, size in zip(arenas(), sizes, strict=True))
    packed[: len(stream)] = np.frombuffer(stream, np.uint8)
    numbers, extra = numbers.view(np.uint32), extra.view(np.uint32)
    places = np.empty((2, pfor.MOST_BITS + 1), np.int64)
    return bool(pfor.decode_stream(packed.ctypes.data, len(stream), n, numbers, extra, places)), numbers.copy()


def pfor_case(number: int) -> list[str]:
    """Decodes a stream of the library, whole or damaged, as the slow decoder does. Returns the kind of the case."""
    rng = random.Random(number)
    stream, n, expected = rng.choice(short_streams() if number % 100 else streams())
    kind = rng.choice(["whole", "flipped", "wrong word", "cut", "another length"])
    damaged = stream
    if kind == "flipped":
        damaged = flipped(rng, stream)
    elif kind == "wrong word":
        at = rng.randrange(min(len(stream) // WORD, 400)) * WORD
        value = rng.choice([0, 1, 255, 256, 2**16, 2**31, 2**32 - 1, len(stream) // WORD, rng.randrange(2**32)])
        damaged = stream[:at] + value.to_bytes(WORD, "little") + stream[at + WORD :]
    elif kind == "cut":
        damaged = stream[: rng.randrange(len(stream) // WORD) * WORD]
    elif kind == "another length":
        n = max(1, n + rng.choice([-256, -3, -1, 1, 2, 300]))
    valid, numbers = guarded(damaged, n, rng.random() < 0.6)
    slow = decode_slowly(damaged, n)
    assert valid == (slow is not None)
    if damaged == stream and n == len(expected):
        assert slow == expected.tolist()
    if valid:
        np.testing.assert_array_equal(numbers, slow)
    return [f"{kind}, {'valid' if valid else 'refused'}"]


def test_no_byte_outside_of_the_buffers_is_touched(tmp_path: Path) -> None:
    pytest.importorskip("cellstream")
    survive(f"{__name__}:pfor_case", CASES, tmp_path)
