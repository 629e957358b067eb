"""Our decoder of Blosc gives what the library gives, and stays in its memory whatever a chunk says."""

import random
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numba
import numcodecs
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from loadstone.codecs import intrinsics, lz4
from tests.loadstone.contents import contents
from tests.loadstone.guarded import Arena, cases, flipped, some_bytes, survive

GUARD = 512  # bytes on both sides that must stay as they are
ROOM = 1 << 18  # bytes of an arena
CASES = cases(4_000)


def decoded(chunk: bytes, wanted: int) -> tuple[int, bytes]:
    """What is said of it, and what is in it."""
    packed, room = np.frombuffer(chunk, np.uint8), np.full((2, wanted + 2 * GUARD), 77, np.uint8)
    inside = room[:, GUARD : GUARD + wanted]
    status = lz4.decode(packed.ctypes.data, len(packed), *inside)
    guards = np.delete(room, np.s_[GUARD : GUARD + wanted], axis=1)
    assert (guards == 77).all()
    return status, inside[0].tobytes()


@settings(max_examples=400)
@given(
    array=contents(),
    name=st.sampled_from(["lz4", "lz4hc"]),
    level=st.integers(1, 9),
    shuffle=st.sampled_from([numcodecs.Blosc.NOSHUFFLE, numcodecs.Blosc.SHUFFLE]),
    block=st.sampled_from([0, 256, 2_048, 16_384]),
    times=st.integers(1, 12),
)
def test_any_chunk(array: np.ndarray, name: str, level: int, shuffle: int, block: int, times: int) -> None:
    """Of one block and of many, whole and not; only what Blosc has not compressed at all is left to it."""
    array = np.tile(array, times)
    chunk = bytes(numcodecs.Blosc(name, level, shuffle, block).encode(array))
    status, found = decoded(chunk, array.nbytes)
    is_stored = chunk[2] & 2
    assert (status, found) == (lz4.DONE, array.tobytes()) if not is_stored else status == lz4.UNKNOWN


@pytest.mark.parametrize(
    "codec",
    [
        numcodecs.Blosc("zstd"),
        numcodecs.Blosc("zlib"),
        numcodecs.Blosc("blosclz"),
        numcodecs.Blosc("lz4", shuffle=numcodecs.Blosc.BITSHUFFLE),
    ],
    ids=str,
)
def test_what_is_packed_otherwise_is_left_to_the_library(codec: numcodecs.Blosc) -> None:
    assert decoded(bytes(codec.encode(np.arange(9_000))), 72_000)[0] == lz4.UNKNOWN


@settings(max_examples=400)
@given(array=contents(), shuffle=st.sampled_from([0, 1]), data=st.data())
def test_damage(array: np.ndarray, shuffle: int, data: st.DataObject) -> None:
    """Where it is not seen, for nothing is left of it that could show it, the library gives the same."""
    codec = numcodecs.Blosc("lz4", 5, shuffle, data.draw(st.sampled_from([0, 512])))
    chunk = bytearray(codec.encode(array))
    for _ in range(data.draw(st.integers(1, 3))):
        chunk[data.draw(st.integers(0, len(chunk) - 1))] ^= data.draw(st.integers(1, 255))
    damaged = bytes(chunk[: data.draw(st.sampled_from([len(chunk), len(chunk) // 2]))])
    status, found = decoded(damaged, array.nbytes)
    assert status in (lz4.DONE, lz4.BAD, lz4.UNKNOWN)
    if status == lz4.DONE:
        try:
            expected = bytes(codec.decode(damaged))
        except RuntimeError:  # of matches nearer to a stream's end than its rules allow
            return
        assert found == expected


@pytest.mark.parametrize("wanted", [71_992, 72_008])
def test_a_chunk_of_another_length(wanted: int) -> None:
    assert decoded(bytes(numcodecs.Blosc().encode(np.arange(9_000))), wanted)[0] == lz4.BAD


@pytest.mark.parametrize("shuffle", [intrinsics.SHUFFLE, None])
@given(distance=st.integers(1, 40), seed=st.integers(0, 99))
@example(distance=16, seed=0)
def test_what_is_near_is_repeated(shuffle: str | None, distance: int, seed: int) -> None:
    """By one instruction, and where a processor has none that is known."""
    held = np.frombuffer(np.random.default_rng(seed).bytes(80), np.uint8).copy()
    expected = held.copy()
    for place in range(40, 40 + intrinsics.VECTOR):
        expected[place] = expected[place - distance]
    repeats(shuffle)(held.ctypes.data + 40, distance)
    np.testing.assert_array_equal(held, expected)


@cache
def repeats(shuffle: str | None) -> Callable[[int, int], None]:
    @numba.njit
    def repeat(target, distance):
        intrinsics.repeated(target, distance)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(intrinsics, "SHUFFLE", shuffle)
        repeat(np.zeros(80).ctypes.data + 40, 1)
    (made,) = repeat.inspect_llvm().values()
    assert ("pshuf.b" in made or "tbl1" in made) == (shuffle is not None)
    return repeat


@cache
def arenas() -> list[Arena]:
    """For the chunk, for what it decodes to and for its planes."""
    return [Arena(ROOM) for _ in range(3)]


def guarded(chunk: bytes, wanted: int, at_end: bool) -> tuple[int, bytes]:
    """As `decoded`, but the chunk, the result and the planes end or begin at guard pages."""
    sizes = len(chunk), wanted, wanted
    packed, out, planes = (arena.take(n, at_end) for arena, n in zip(arenas(), sizes, strict=True))
    packed[:] = np.frombuffer(chunk, np.uint8)
    return lz4.decode(packed.ctypes.data, len(chunk), out, planes), out.tobytes()


def plainly(stream: bytes, n: int) -> bytes | None:
    """The `n` bytes of a stream of LZ4, a byte at a time; None if it is damaged."""
    out, rest = bytearray(), iter(stream)

    def length(first: int) -> int:
        more = 255 if first == lz4.MORE else 0
        while more == 255:
            more = next(rest)
            first += more
        return first

    try:
        while True:
            lengths = next(rest)
            for _ in range(length(lengths >> 4)):
                out.append(next(rest))
            low = next(rest, None)
            if low is None:
                return bytes(out) if len(out) == n else None
            distance = low | next(rest) << 8
            if not 0 < distance <= len(out):
                return None
            for _ in range(length(lengths & 15) + lz4.LEAST_MATCH):
                out.append(out[-distance])
            if len(out) > n:
                return None
    except StopIteration:
        return None


def _said(n: int) -> tuple[int, bytes]:
    """A length, as four bits and the bytes that follow them."""
    return (n, b"") if n < lz4.MORE else (lz4.MORE, b"\xff" * ((n - lz4.MORE) // 255) + bytes([(n - lz4.MORE) % 255]))


def stream_of(rng: random.Random, n: int, flaw: str) -> bytes:
    """A stream of LZ4 that gives `n` bytes, unless it has a flaw somewhere."""
    parts, out, at = [], 0, rng.randrange(n)
    while n - out > 20 and rng.random() < 0.995:
        literals = min(rng.choice([0, 0, 1, 3, 8, 9, 14, 15, 300]), n - out - 12) or (out == 0)
        match = min(rng.choice([4, 4, 5, 16, 17, 19, 40, 700]), n - out - literals - rng.choice([0, 1, 5]))
        distance = min(out + literals, rng.choice([1, 2, 3, 7, 8, 15, 16, 17, 5_000]))
        if flaw and out >= at:
            distance = {"distance 0": 0, "too far": out + literals + 1}.get(flaw, distance) & 0xFFFF
            match += n if flaw == "match too long" else 0
            literals += n if flaw == "literals too long" else 0
            flaw = ""
        (high, more), (low, longer) = _said(literals), _said(match - lz4.LEAST_MATCH)
        literal = rng.randbytes(min(literals, n))
        parts.append(bytes([high << 4 | low]) + more + literal + distance.to_bytes(2, "little") + longer)
        out += literals + match
    high, more = _said(max(0, n - out))
    parts.append(bytes([high << 4]) + more + rng.randbytes(max(0, n - out)))
    stream = b"".join(parts)
    return {"cut": stream[: rng.randrange(len(stream))], "more": stream + b"\0"}.get(flaw, stream)


FLAWS = ["", "", "", "distance 0", "too far", "match too long", "literals too long", "cut", "more"]


def chunk_of(rng: random.Random) -> tuple[str, bytes, bytes | None, int]:
    """A chunk that is written by hand: its flaw, the chunk, what it holds if it is whole, and how many bytes."""
    width, flaw = rng.choice([1, 2, 4, 8]), rng.choice(FLAWS)
    is_shuffled, block = rng.random() < 0.7, width * rng.choice([1, 2, 40, 127, 128, 129, 600])
    wanted = rng.randint(1, min(60, 12_000 // block) * block // width) * width
    is_split = block >= lz4.LEAST_SPLIT * width
    n_blocks = -(-wanted // block)
    flawed, places, parts, found = rng.randrange(n_blocks), [], [], []
    for i in range(n_blocks):
        n = min(block, wanted - i * block)
        places.append(lz4.HEAD + 4 * n_blocks + sum(map(len, parts)))
        splits, planes = width if n == block and is_split else 1, []
        for _ in range(splits):
            plain = n // splits
            stream = stream_of(rng, plain, flaw if i == flawed else "")
            if len(stream) == plain or rng.random() < 0.1:
                stream = rng.randbytes(plain)
            parts.append(len(stream).to_bytes(4, "little") + stream)
            planes.append(stream if len(stream) == plain else plainly(stream, plain))
        whole = None if None in planes else b"".join(planes)
        if whole is not None and is_shuffled:
            whole = np.frombuffer(whole, np.uint8).reshape(width, -1).T.tobytes()
        found.append(whole)
    body = b"".join([*(place.to_bytes(4, "little") for place in places), *parts])
    flags = lz4.LZ4 << lz4.FORMAT | is_shuffled * lz4.SHUFFLED | (0 if is_split else rng.choice([0, lz4.NOT_SPLIT]))
    head = bytes([lz4.VERSION, lz4.LZ4_VERSION, flags, width])
    sizes = np.array([wanted, block, lz4.HEAD + len(body)], "<u4").tobytes()
    return flaw or "whole", head + sizes + body, None if None in found else b"".join(found), wanted


def lied(rng: random.Random, chunk: bytes) -> bytes:
    """With another number in the head, or where a block or a stream of it begins."""
    at = rng.choice([2, 3, 4, 8, 8, 8, 12, *range(lz4.HEAD, min(len(chunk) - 4, 60), 4)])
    n = 1 if at < 4 else 4
    number = rng.choice([0, 1, 2, 4, 8, 127, 128, len(chunk), len(chunk) - 1, 2**31 - 1, 2**31, 2**32 - 1])
    return chunk[:at] + (number % (1 << 8 * n)).to_bytes(4, "little")[:n] + chunk[at + n :]


def lz4_case(number: int) -> list[str]:
    """A chunk of the library or by hand, whole or damaged; says of which kind it was."""
    rng = random.Random(number)
    answer, name = None, rng.choice(["library", "by hand", "by hand"])
    if name == "library":
        answer = some_bytes(rng)[:20_000]
        answer = answer[: len(answer) // 4 * 4] or bytes(4)
        shuffle, block = rng.choice([0, 1]), rng.choice([0, 0, 1, 16, 256, 2_048])
        array = np.frombuffer(answer, rng.choice(["u1", "<u2", "<u4"]))
        chunk = bytes(numcodecs.Blosc(rng.choice(["lz4", "lz4hc"]), rng.randint(1, 9), shuffle, block).encode(array))
        kind, wanted, answer = "whole", len(answer), None if chunk[2] & 2 else answer
    else:
        kind, chunk, answer, wanted = chunk_of(rng)
    damage, at_end = rng.choice(["as it is", "as it is", "flipped", "lied", "cut"]), rng.random() < 0.6
    if damage == "flipped":
        damaged = flipped(rng, chunk, first=rng.choice([0, lz4.HEAD]))
    elif damage == "cut":
        damaged = chunk[: rng.randrange(len(chunk))]
        if len(damaged) >= lz4.HEAD and rng.random() < 0.7:
            damaged = damaged[:12] + len(damaged).to_bytes(4, "little") + damaged[lz4.HEAD :]
    else:
        damaged = lied(rng, chunk) if damage == "lied" else chunk
    status, found = guarded(damaged, wanted, at_end)
    if damaged == chunk:
        is_stored = name == "library" and answer is None
        expected = lz4.UNKNOWN if is_stored else lz4.BAD if answer is None else lz4.DONE
        assert status == expected, (status, expected)
        assert answer is None or found == answer
    assert status in (lz4.DONE, lz4.BAD, lz4.UNKNOWN)
    return [f"{name}, {kind}, {damage}, {'at the end' if at_end else 'at the start'}"]


def lengths_case(number: int) -> list[str]:
    """Chunks and results of every length modulo 64."""
    rng = random.Random(number)
    for n in range(1, 65):
        raw = rng.choice([some_bytes(rng)[:3_000], bytes(1_500)]) + bytes(200 + n)
        chunk = bytes(numcodecs.Blosc("lz4", 5, 0, rng.choice([0, 256])).encode(raw))
        for at_end in (True, False):
            status, found = guarded(chunk, len(raw), at_end)
            assert (status, found) == (lz4.DONE, raw) if not chunk[2] & 2 else status == lz4.UNKNOWN
            damaged = flipped(rng, chunk, first=lz4.HEAD)
            guarded(damaged, len(raw), at_end)
    return ["all lengths modulo 64"]


@pytest.mark.parametrize(("case", "n"), [("lz4_case", CASES), ("lengths_case", CASES // 100)])
def test_nothing_beyond_a_chunk_and_its_result_is_touched(case: str, n: int, tmp_path: Path) -> None:
    survive(f"{__name__}:{case}", n, tmp_path)


@pytest.mark.parametrize("damaged", [0, 1])
def test_damage_near_the_end_of_a_stream_is_not_forgotten(damaged: int) -> None:
    """A literal and a match of no distance, of which the literal and what follows it are a sequence too."""
    plain = 600
    for n_before in range(60):
        streams = []
        for n, match, wrong in ((n_before + 20, 4, b""), (n_before, 8, b"\x10\x20\0\0\1\0")):
            sequences = bytes([0x10, 7, 1, 0]) + bytes([match - lz4.LEAST_MATCH, 1, 0]) * n
            left = plain - 5 - n * match - 7 * bool(wrong)
            high, more = _said(left)
            streams.append(sequences + wrong + bytes([high << 4]) + more + bytes(left))
        slow, wrong = streams
        assert (plainly(slow, plain) is None, plainly(wrong, plain) is None) == (False, True)
        parts = [wrong, slow] if damaged == 0 else [slow, wrong]
        body = b"".join(len(part).to_bytes(4, "little") + part for part in parts)
        head = bytes([lz4.VERSION, lz4.LZ4_VERSION, lz4.LZ4 << lz4.FORMAT, len(parts)])
        sizes = np.array([2 * plain, 2 * plain, lz4.HEAD + 4 + len(body), lz4.HEAD + 4], "<u4").tobytes()
        assert guarded(head + sizes + body, 2 * plain, True)[0] == lz4.BAD
