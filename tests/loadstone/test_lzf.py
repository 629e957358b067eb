"""Our LZF decoder returns what h5py's filter compressed, and never leaves its buffers, whatever the chunk holds."""

import random
from functools import cache

import h5py
import numpy as np
import pytest
from hypothesis import given, settings

from loadstone.codecs.lzf import decompress
from tests.loadstone.contents import contents, flipped, some_bytes
from tests.loadstone.guarded import Arena, cases, survive

ROOM = 1 << 18  # bytes of an arena


def packed(raw: np.ndarray) -> bytes | None:
    """One chunk as h5py's filter writes it. None if the filter does not make it smaller."""
    with h5py.File("chunk", "w", driver="core", backing_store=False) as file:
        dataset = file.create_dataset("x", data=raw, chunks=raw.shape, compression="lzf")
        mask, chunk = dataset.id.read_direct_chunk((0,))
    return None if mask else chunk


@settings(max_examples=300)
@given(array=contents())
def test_any_chunk(array: np.ndarray) -> None:
    chunk = packed(array)
    if chunk is not None:
        assert decompress(chunk, array.nbytes).tobytes() == array.tobytes()
        for wanted in (array.nbytes - 1, array.nbytes + 1, 0):
            with pytest.raises(ValueError, match="do not decode to"):
                decompress(chunk, wanted)


def decode_bytewise(chunk: bytes, n: int) -> bytes | None:
    """Reference decoder: the `n` bytes of a chunk, decoded byte by byte. None if the chunk is damaged."""
    out, rest = bytearray(), iter(chunk)
    try:
        for control in rest:
            if control < 32:
                out += bytes(next(rest) for _ in range(control + 1))
                continue
            length = (control >> 5) + 2 + (next(rest) if control >> 5 == 7 else 0)
            distance = ((control & 31) << 8) + next(rest) + 1
            if distance > len(out):
                return None
            for _ in range(length):
                out.append(out[-distance])
    except (StopIteration, RuntimeError):  # `next` raises the latter in a generator
        return None
    return bytes(out) if len(out) == n else None


@cache
def arenas() -> list[Arena]:
    """Two arenas: for the chunk and for the result."""
    return [Arena(ROOM) for _ in range(2)]


def lzf_case(number: int) -> list[str]:
    """Decodes an intact, damaged or random chunk between guard pages. Returns what went wrong."""
    from loadstone.codecs.lzf import _decode

    rng = random.Random(number)
    raw = np.frombuffer(some_bytes(rng), np.uint8)
    chunk, kind = packed(raw), rng.choice(["whole", "flipped", "cut", "random"])
    if chunk is None or kind == "random":
        chunk, kind = rng.randbytes(rng.randint(1, 300)), "random"
    elif kind == "flipped":
        chunk = flipped(rng, chunk, 0)
    elif kind == "cut":
        chunk = chunk[: rng.randrange(len(chunk))]
    expected = decode_bytewise(chunk, len(raw))
    for at_end in (True, False):
        buffer, out = (arena.take(n, at_end) for arena, n in zip(arenas(), (len(chunk), len(raw)), strict=True))
        buffer[:] = np.frombuffer(chunk, np.uint8)
        assert _decode(buffer, out) == (expected is not None)
        assert expected in (None, out.tobytes())
    return [kind, "decoded" if expected is not None else "refused"]


def test_memory_beyond_the_buffers_is_not_touched(tmp_path_factory: pytest.TempPathFactory) -> None:
    survive("tests.loadstone.test_lzf:lzf_case", cases(400), tmp_path_factory.mktemp("lzf"))
