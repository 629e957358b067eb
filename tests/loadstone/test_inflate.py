"""Our inflate returns what zlib returns for streams from any encoder, and reports damaged streams."""

import random
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadstone.codecs.deflate import inflate
from tests.loadstone.contents import contents
from tests.loadstone.deflate_streams import CODE_FLAWS, Bits, some_codes

STRATEGIES = [zlib.Z_DEFAULT_STRATEGY, zlib.Z_FILTERED, zlib.Z_HUFFMAN_ONLY, zlib.Z_RLE, zlib.Z_FIXED]
STATE = inflate.memory()


def inflated(streams: list[bytes], wanted: int, is_head: bool = False) -> tuple[int, list[bytes]]:
    """Inflates each stream to `wanted` bytes. Returns (index of a damaged stream, or -1; the results)."""
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
def test_any_stream_and_any_prefix_of_it(
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
def test_a_stream_that_zlib_rejects_is_not_accepted(array: np.ndarray, level: int, data: st.DataObject) -> None:
    raw = array.tobytes()
    stream = bytearray(deflated(raw, level))
    for _ in range(data.draw(st.integers(1, 3))):
        stream[data.draw(st.integers(0, len(stream) - 5))] ^= data.draw(st.integers(1, 255))
    cut = data.draw(st.integers(2, len(stream)))
    damaged, (result,) = inflated([bytes(stream[:cut])], len(raw))
    try:
        expected = zlib.decompressobj(-15).decompress(bytes(stream[2:cut]), len(raw) + 1)
    except zlib.error:
        expected = None
    if damaged < 0:
        assert expected == result or zlib.adler32(result) != zlib.adler32(raw)


@pytest.mark.parametrize("wanted", [99, 101])
def test_a_stream_of_a_different_length_is_rejected(wanted: int) -> None:
    assert inflated([deflated(bytes(100))], wanted)[0] == 0


def test_the_index_of_the_damaged_stream_is_returned() -> None:
    good = deflated(np.arange(5_000).tobytes())
    assert inflated([good, good[:-9], good], 40_000)[0] == 1


@pytest.mark.parametrize("flaw", CODE_FLAWS)
def test_codes_that_zlib_rejects_are_rejected(flaw: str) -> None:
    """The codes are checked before any symbol is decoded, so a prefix is rejected too."""
    for seed in range(50):
        rng, bits = random.Random(seed), Bits()
        bits.put(0x9C78, 16)
        codes = some_codes(rng, bits, True, flaw)
        for _ in range(300):  # as many as the decoding rounds may read
            bits.symbol(codes[0], next(symbol for symbol in codes[0] if symbol < 256))
        with pytest.raises(zlib.error):
            zlib.decompressobj(-15).decompress(bits.bytes()[2:], 1)
        assert inflated([bits.bytes()], 1, is_head=True)[0] == 0


@pytest.mark.parametrize("is_head", [False, True])
def test_a_stored_block_with_a_wrong_complement_is_rejected(is_head: bool) -> None:
    bits = Bits()
    bits.put(0x9C78, 16)
    bits.stored(bytes(50), True, complement=0xFFFE)
    assert inflated([bits.bytes()], 40 if is_head else 50, is_head)[0] == 0


def test_the_zlib_headers_accepted_are_those_that_zlib_accepts() -> None:
    """DEFLATE with a window of at most 32 KiB, no preset dictionary, and correct check bits."""
    body = zlib.compress(b"")[2:]
    for head in range(1 << 16):
        stream = head.to_bytes(2, "little") + body
        if head & 0x0F == 8 or head % 31 == 0:
            try:
                accepted = zlib.decompress(stream) == b""
            except zlib.error:
                accepted = False
            assert (inflated([stream], 0)[0] < 0) == accepted
