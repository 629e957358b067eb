"""Our Blosc decoder neither reads nor writes beyond its buffers, which end or begin at guard pages."""

import random
from functools import cache
from pathlib import Path

import numcodecs
import numpy as np
import pytest

from loadstone.codecs import lz4
from tests.loadstone.contents import flipped, some_bytes
from tests.loadstone.guarded import Arena, cases, survive
from tests.loadstone.lz4_chunks import chunk_of, decode_bytewise, length_code, with_wrong_field

ROOM = 1 << 18  # bytes of an arena
CASES = cases(4_000)


@cache
def arenas() -> list[Arena]:
    """Three arenas: for the chunk, for the result, and for the byte planes."""
    return [Arena(ROOM) for _ in range(3)]


def guarded(chunk: bytes, wanted: int, at_end: bool) -> tuple[int, bytes]:
    """Decodes a chunk; guard pages follow all buffers if `at_end`, else precede them. Returns (status, result)."""
    sizes = len(chunk), wanted, wanted
    packed, out, planes = (arena.take(n, at_end) for arena, n in zip(arenas(), sizes, strict=True))
    packed[:] = np.frombuffer(chunk, np.uint8)
    return lz4.decode(packed.ctypes.data, len(chunk), out, planes), out.tobytes()


def lz4_case(number: int) -> list[str]:
    """Decodes a chunk that the library or `chunk_of` made, whole or damaged. Returns the kind of the case."""
    rng = random.Random(number)
    answer, source = None, rng.choice(["library", "by hand", "by hand"])
    if source == "library":
        answer = some_bytes(rng)[:20_000]
        answer = answer[: len(answer) // 4 * 4] or bytes(4)
        shuffle, block = rng.choice([0, 1]), rng.choice([0, 0, 1, 16, 256, 2_048])
        array = np.frombuffer(answer, rng.choice(["u1", "<u2", "<u4"]))
        chunk = bytes(numcodecs.Blosc(rng.choice(["lz4", "lz4hc"]), rng.randint(1, 9), shuffle, block).encode(array))
        kind, wanted, answer = "whole", len(answer), None if chunk[2] & 2 else answer
    else:
        kind, chunk, answer, wanted = chunk_of(rng)
    damage, at_end = rng.choice(["none", "none", "flipped", "wrong field", "cut"]), rng.random() < 0.6
    if damage == "flipped":
        damaged = flipped(rng, chunk, first=rng.choice([0, lz4.HEAD]))
    elif damage == "cut":
        damaged = chunk[: rng.randrange(len(chunk))]
        if len(damaged) >= lz4.HEAD and rng.random() < 0.7:
            damaged = damaged[:12] + len(damaged).to_bytes(4, "little") + damaged[lz4.HEAD :]
    else:
        damaged = with_wrong_field(rng, chunk) if damage == "wrong field" else chunk
    status, result = guarded(damaged, wanted, at_end)
    if damaged == chunk:
        is_stored = source == "library" and answer is None
        expected = lz4.UNKNOWN if is_stored else lz4.BAD if answer is None else lz4.DONE
        assert status == expected, (status, expected)
        assert answer is None or result == answer
    assert status in (lz4.DONE, lz4.BAD, lz4.UNKNOWN)
    return [f"{source}, {kind}, {damage}, {'at the end' if at_end else 'at the start'}"]


def lengths_case(number: int) -> list[str]:
    """Decodes chunks and results of every length modulo 64, whole and damaged."""
    rng = random.Random(number)
    for n in range(1, 65):
        raw = rng.choice([some_bytes(rng)[:3_000], bytes(1_500)]) + bytes(200 + n)
        chunk = bytes(numcodecs.Blosc("lz4", 5, 0, rng.choice([0, 256])).encode(raw))
        for at_end in (True, False):
            status, result = guarded(chunk, len(raw), at_end)
            assert (status, result) == (lz4.DONE, raw) if not chunk[2] & 2 else status == lz4.UNKNOWN
            damaged = flipped(rng, chunk, first=lz4.HEAD)
            guarded(damaged, len(raw), at_end)
    return ["all lengths modulo 64"]


@pytest.mark.parametrize(("case", "n"), [("lz4_case", CASES), ("lengths_case", CASES // 100)])
def test_memory_beyond_the_chunk_and_the_result_is_not_touched(case: str, n: int, tmp_path: Path) -> None:
    survive(f"{__name__}:{case}", n, tmp_path)


@pytest.mark.parametrize("damaged", [0, 1])
def test_damage_near_the_end_of_a_stream_is_reported(damaged: int) -> None:
    """A literal and a match of distance 0. The literal and the bytes after it would also be a valid sequence."""
    plain = 600
    for n_before in range(60):
        streams = []
        for n, match, wrong in ((n_before + 20, 4, b""), (n_before, 8, b"\x10\x20\0\0\1\0")):
            sequences = bytes([0x10, 7, 1, 0]) + bytes([match - lz4.LEAST_MATCH, 1, 0]) * n
            n_last = plain - 5 - n * match - 7 * bool(wrong)
            high, more = length_code(n_last)
            streams.append(sequences + wrong + bytes([high << 4]) + more + bytes(n_last))
        slow, wrong = streams
        assert (decode_bytewise(slow, plain) is None, decode_bytewise(wrong, plain) is None) == (False, True)
        parts = [wrong, slow] if damaged == 0 else [slow, wrong]
        body = b"".join(len(part).to_bytes(4, "little") + part for part in parts)
        head = bytes([lz4.VERSION, lz4.LZ4_VERSION, lz4.LZ4 << lz4.FORMAT, len(parts)])
        sizes = np.array([2 * plain, 2 * plain, lz4.HEAD + 4 + len(body), lz4.HEAD + 4], "<u4").tobytes()
        assert guarded(head + sizes + body, 2 * plain, True)[0] == lz4.BAD


def lz4_longest_case(number: int) -> list[str]:
    """Decodes the longest sequences that fast rounds handle; the chunk or the result ends at any place within them."""
    sequence = bytes([lz4.MOST_LITERALS << 4 | lz4.MOST_MATCH - lz4.LEAST_MATCH, *range(lz4.MOST_LITERALS), 1, 0])
    far = 3 * lz4.ROUNDS_OUT
    ends = [(n, far) for n in range(2 * lz4.ROUNDS_IN)] + [(far, n) for n in range(1, 2 * lz4.ROUNDS_OUT)]
    for n_stream, plain in ends:
        stream = (sequence * far)[:n_stream]
        head = bytes([lz4.VERSION, lz4.LZ4_VERSION, lz4.LZ4 << lz4.FORMAT, 1])
        sizes = np.array([plain, plain, lz4.HEAD + 8 + n_stream, lz4.HEAD + 4, n_stream], "<u4").tobytes()
        assert guarded(head + sizes + stream, plain, True)[0] == (lz4.DONE if n_stream == plain else lz4.BAD)
    return ["the longest sequences"]


def lz4_beyond_case(number: int) -> list[str]:
    """Decodes chunks whose streams, stored bytes or block offsets would extend up to four bytes beyond the end."""
    head = bytes([lz4.VERSION, lz4.LZ4_VERSION, lz4.LZ4 << lz4.FORMAT, 1])

    def is_rejected(plain: int, block: int, body: bytes) -> bool:
        sizes = np.array([plain, block, lz4.HEAD + len(body)], "<u4").tobytes()
        return guarded(head + sizes + body, plain, True)[0] == lz4.BAD

    for n in range(8, 2 * lz4.ROUNDS_IN):
        more = n - lz4.MORE
        token = bytes([n << 4]) if more < 0 else bytes([lz4.MORE << 4, *[255] * (more // 255), more % 255])
        for stream in (token + bytes(n), bytes(n)):
            body = np.array([lz4.HEAD + 4, len(stream)], "<u4").tobytes() + stream
            assert not is_rejected(n, n, body)
            for less in range(1, 5):
                assert is_rejected(n, n, body[:-less])
                assert is_rejected(n, n, np.array([len(body) + lz4.HEAD - 4 + less], "<u4").tobytes() + body[4:])
                assert is_rejected(4 * n, 4, np.array([lz4.HEAD + 4] * n, "<u4").tobytes()[:-less])
    return ["beyond the end"]


@pytest.mark.parametrize("case", ["lz4_longest_case", "lz4_beyond_case"])
def test_nothing_is_read_beyond_the_last_byte_of_a_chunk(case: str, tmp_path: Path) -> None:
    survive(f"{__name__}:{case}", 1, tmp_path)
