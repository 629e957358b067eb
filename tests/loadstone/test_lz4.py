"""Our decoder of Blosc chunks returns what the library returns, and writes only to its output."""

from collections.abc import Callable
from functools import cache

import numba
import numcodecs
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from loadstone.codecs import intrinsics, lz4
from tests.loadstone.contents import contents

GUARD = 512  # bytes on both sides of each buffer that must not change


def decoded(chunk: bytes, wanted: int) -> tuple[int, bytes]:
    """(status, result) of decoding a chunk to `wanted` bytes. Asserts that nothing is written outside of the result."""
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
    """One or many blocks, the last one full or not. Only uncompressed chunks are left to the library."""
    array = np.tile(array, times)
    chunk = bytes(numcodecs.Blosc(name, level, shuffle, block).encode(array))
    status, result = decoded(chunk, array.nbytes)
    is_stored = chunk[2] & 2
    assert (status, result) == (lz4.DONE, array.tobytes()) if not is_stored else status == lz4.UNKNOWN


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
def test_other_codecs_are_left_to_the_library(codec: numcodecs.Blosc) -> None:
    assert decoded(bytes(codec.encode(np.arange(9_000))), 72_000)[0] == lz4.UNKNOWN


@settings(max_examples=400)
@given(array=contents(), shuffle=st.sampled_from([0, 1]), data=st.data())
def test_damaged_chunks(array: np.ndarray, shuffle: int, data: st.DataObject) -> None:
    """Damage may leave a valid chunk. If it is not detected, the library decodes the chunk to the same bytes."""
    codec = numcodecs.Blosc("lz4", 5, shuffle, data.draw(st.sampled_from([0, 512])))
    chunk = bytearray(codec.encode(array))
    for _ in range(data.draw(st.integers(1, 3))):
        chunk[data.draw(st.integers(0, len(chunk) - 1))] ^= data.draw(st.integers(1, 255))
    damaged = bytes(chunk[: data.draw(st.sampled_from([len(chunk), len(chunk) // 2]))])
    status, result = decoded(damaged, array.nbytes)
    assert status in (lz4.DONE, lz4.BAD, lz4.UNKNOWN)
    if status == lz4.DONE:
        try:
            expected = bytes(codec.decode(damaged))
        except RuntimeError:  # for matches nearer to the end of a stream than LZ4 allows
            return
        assert result == expected


@pytest.mark.parametrize("wanted", [71_992, 72_008])
def test_a_chunk_of_a_different_length_is_rejected(wanted: int) -> None:
    assert decoded(bytes(numcodecs.Blosc().encode(np.arange(9_000))), wanted)[0] == lz4.BAD


@pytest.mark.parametrize("shuffle", [intrinsics.SHUFFLE, None])
@given(distance=st.integers(1, 40), seed=st.integers(0, 99))
@example(distance=16, seed=0)
def test_bytes_at_a_short_distance_are_repeated(shuffle: str | None, distance: int, seed: int) -> None:
    """With the shuffle instruction of the processor, and without one."""
    buffer = np.frombuffer(np.random.default_rng(seed).bytes(80), np.uint8).copy()
    expected = buffer.copy()
    for place in range(40, 40 + intrinsics.VECTOR):
        expected[place] = expected[place - distance]
    repeats(shuffle)(buffer.ctypes.data + 40, distance)
    np.testing.assert_array_equal(buffer, expected)


@cache
def repeats(shuffle: str | None) -> Callable[[int, int], None]:
    """A compiled function that calls `intrinsics.repeated`. shuffle: the shuffle instruction to use, or None."""

    @numba.njit
    def repeat(target, distance):
        intrinsics.repeated(target, distance)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(intrinsics, "SHUFFLE", shuffle)
        repeat(np.zeros(80).ctypes.data + 40, 1)
    (code,) = repeat.inspect_llvm().values()
    assert ("pshuf.b" in code or "tbl1" in code) == (shuffle is not None)
    return repeat
