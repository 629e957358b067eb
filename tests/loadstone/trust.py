"""What the tests of hostile stores share: a small matrix, the lies of its arrays, and how all of it is read."""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

from loadstone import BlockLoader, BlockShuffling

ROWS, GENES = 60, 50
X = sp.random(ROWS, GENES, 0.3, "csr", np.float32, np.random.default_rng(0))
OUTPUTS = ["csr", "dense"]
GENE = {"negative": -1, "one too many": GENES, "into the next row": GENES + 12, "int32's last": 2**31 - 1}


def read_all(open_source: Callable[[], Any]) -> list[np.ndarray]:
    """All cells, in blocks; whatever happens, no thread is left."""
    before = set(threading.enumerate())
    source = None
    try:
        source = open_source()
        loader = BlockLoader(source, sampler=BlockShuffling(4), batch_size=8, fetch_factor=2)
        return [batch.x for _ in range(2) for batch in loader]
    finally:
        if source is not None:
            source.close()
        left = {t for t in set(threading.enumerate()) - before if t.name.startswith(("decode", "fetch"))}
        assert not left
