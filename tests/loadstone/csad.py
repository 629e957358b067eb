"""Archives of cellstream for the tests, with cells of every kind that its integer codec treats differently."""

from pathlib import Path

import numpy as np
import scipy.sparse as sp

GENES = 140_000  # so that a cell can have several pages


def some_cells(rng: np.random.Generator, n: int) -> sp.csr_matrix:
    """n cells, uint32 (n, GENES): empty, short, as real ones, and of several pages; with few and with large counts."""
    rows = []
    for _ in range(n):
        length = int(rng.choice([0, 1, 7, 127, 255, 256, 257, 511, 1_500, 3_000, 70_000], p=[0.1] * 9 + [0.08, 0.02]))
        spread = int(rng.choice([length + 1, 20 * length + 1, GENES]))
        genes = np.sort(rng.choice(min(max(spread, length), GENES), length, replace=False))
        counts = rng.geometric(rng.choice([0.9, 0.5, 0.01]), length).astype(np.uint32)
        large = rng.random(length) < rng.choice([0, 0.01, 0.3, 1])
        counts[large] = rng.integers(1, 2 ** int(rng.integers(2, 33)), large.sum(), dtype=np.uint32)
        rows.append((counts, genes))
    indptr = np.cumsum([0, *(len(genes) for _, genes in rows)])
    counts, genes = (np.concatenate([row[k] for row in rows]) for k in (0, 1))
    return sp.csr_matrix((counts, genes.astype(np.int32), indptr), shape=(n, GENES))


def write(path: Path, x: sp.csr_matrix, value_dtype: str = "uint32") -> Path:
    import pandas as pd
    from cellstream.cell import CellArchiveWriter

    obs, var = (pd.DataFrame(index=np.arange(n).astype(str)) for n in x.shape)
    with CellArchiveWriter(path, n_vars=x.shape[1], value_dtype=value_dtype) as writer:
        writer.add_block(x)
        writer.finalize(obs=obs, var=var)
    return path


def frames(path: Path) -> list[tuple[bytes, int]]:
    """(the frame, the number of values) of each cell of an archive."""
    from loadstone import open_csad

    source = open_csad(path)
    try:
        whole = path.read_bytes()
        every = np.arange(len(source) + 1)
        counts = np.diff(source.values[every]).tolist()
        offsets = source.first + source.frames[every]
        return [(whole[a:b], n) for a, b, n in zip(offsets, offsets[1:], counts, strict=False)]
    finally:
        source.close()
