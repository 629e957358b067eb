"""Shared by the tests of malformed stores: a small matrix, invalid gene indices, and functions that read and write."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import scipy.sparse as sp

from loadstone import BlockLoader, BlockShuffling, open_h5ad

ROWS, GENES = 60, 50
X = sp.random(ROWS, GENES, 0.3, "csr", np.float32, np.random.default_rng(0))
OUTPUTS = ["csr", "dense"]
GENE = {  # invalid gene indices
    "negative": -1,
    "one too many": GENES,
    "into the next row": GENES + 12,
    "int32's last": 2**31 - 1,
}


def read_all(open_source: Callable[[], Any]) -> list[np.ndarray]:
    """The minibatches of two epochs of block sampling. Asserts that no reader thread remains, even on an error."""
    before = set(threading.enumerate())
    source = None
    try:
        source = open_source()
        loader = BlockLoader(source, sampler=BlockShuffling(4), batch_size=8, fetch_factor=2)
        return [batch.x for _ in range(2) for batch in loader]
    finally:
        if source is not None:
            source.close()
        remaining = {t for t in set(threading.enumerate()) - before if t.name.startswith(("decode", "fetch"))}
        assert not remaining


def read_h5ad(path: Path, output: str = "csr") -> list[np.ndarray]:
    return read_all(lambda: open_h5ad(path, output=output, threads=2))


def store_h5ad(file: h5py.File, name: str, values: np.ndarray, **options: object) -> None:
    """Writes an array ("data", "indices" or "indptr") of X into an h5ad file; an existing one is replaced."""
    if name in file["X"]:
        del file["X"][name]
    file["X"].create_dataset(name, data=values, **options)
