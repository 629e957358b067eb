"""Test data for the decoders, before and after compression."""

import random

import numpy as np
from hypothesis import strategies as st


@st.composite
def contents(draw: st.DrawFn) -> np.ndarray:
    """A hypothesis strategy for arrays of 1 to 20,000 elements, of several dtypes: like counts, indices or noise."""
    dtype = draw(st.sampled_from(["u1", "<u2", "<i4", "<i8", "<f4", "<f8"]))
    n, seed = draw(st.integers(1, 20_000)), draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    kind = draw(st.sampled_from(["ascending", "counts", "noise", "zeros", "skewed"]))
    if kind == "ascending":
        return np.cumsum(rng.geometric(1 / 45, n)).astype(dtype)
    if kind == "counts":
        return rng.geometric(0.6, n).astype(dtype)
    if kind == "zeros":
        return np.zeros(n, dtype)
    if kind == "skewed":  # some of these bytes get Huffman codes of the maximum length
        return np.minimum(255, rng.geometric(0.45, n) * rng.integers(1, 12)).astype("u1")
    return np.frombuffer(rng.bytes(n * np.dtype(dtype).itemsize), dtype)


def some_bytes(rng: random.Random) -> bytes:
    """The bytes of a random array, uint8 or int32: like counts, like indices, noise or zeros."""
    draw, n = np.random.default_rng(rng.getrandbits(32)), rng.choice([1, 40, 700, 9_000])
    kinds = (
        draw.geometric(0.5, n),
        np.cumsum(draw.geometric(1 / 45, n)),
        draw.integers(0, 256, n),
        np.zeros(n),
    )
    return rng.choice(kinds).astype(rng.choice(["u1", "<i4"])).tobytes()


def flipped(rng: random.Random, stream: bytes, first: int = 2) -> bytes:
    """A copy of the stream with one to three changed bytes, none before position `first`."""
    changed = bytearray(stream)
    for _ in range(rng.randint(1, 3)):
        if len(changed) > first:
            changed[rng.randrange(first, len(changed))] ^= rng.randint(1, 255)
    return bytes(changed)
