"""What is compressed where decoders are tested."""

import numpy as np
from hypothesis import strategies as st


@st.composite
def contents(draw: st.DrawFn) -> np.ndarray:
    """Numbers as counts and indices are, and as they are not, of any width."""
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
    if kind == "skewed":  # bytes some of whose codes are as long as codes can be
        return np.minimum(255, rng.geometric(0.45, n) * rng.integers(1, 12)).astype("u1")
    return np.frombuffer(rng.bytes(n * np.dtype(dtype).itemsize), dtype)
