"""Our decoder of Blosc gives what the library gives, and stays in its memory whatever a chunk says."""

from collections.abc import Callable
from functools import cache

import numba
import numcodecs
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from loaders.native import lz4, words
from tests.contents import contents

GUARD = 512  # bytes on both sides that must stay as they are


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


@pytest.mark.parametrize("shuffle", [words.SHUFFLE, None])
@given(distance=st.integers(1, 40), seed=st.integers(0, 99))
@example(distance=16, seed=0)
def test_what_is_near_is_repeated(shuffle: str | None, distance: int, seed: int) -> None:
    """By one instruction, and where a processor has none that is known."""
    held = np.frombuffer(np.random.default_rng(seed).bytes(80), np.uint8).copy()
    expected = held.copy()
    for place in range(40, 40 + words.VECTOR):
        expected[place] = expected[place - distance]
    repeats(shuffle)(held.ctypes.data + 40, distance)
    np.testing.assert_array_equal(held, expected)


@cache
def repeats(shuffle: str | None) -> Callable[[int, int], None]:
    @numba.njit
    def repeat(target, distance):
        words.repeated(target, distance)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(words, "SHUFFLE", shuffle)
        repeat(np.zeros(80).ctypes.data + 40, 1)
    (made,) = repeat.inspect_llvm().values()
    assert ("pshuf.b" in made or "tbl1" in made) == (shuffle is not None)
    return repeat
