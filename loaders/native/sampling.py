"""Which rows, in what order: block sampling with batched fetching.

The method is that of the scDataset paper (D'Ascenzo and Cultrera di Montesano 2025): its Algorithm 1 draws blocks
of `block_size` consecutive rows without replacement, its Algorithm 2 gathers `fetch_rows` of them at a time and
shuffles them in memory. The order is a function of (seed, epoch) alone, and is drawn one fetch at a time.
"""

from collections.abc import Iterator

import numpy as np


def streamed(n_rows: int, fetch_rows: int) -> Iterator[np.ndarray]:
    """Row ids, int64, in the order of the files, `fetch_rows` at a time."""
    for start in range(0, n_rows, fetch_rows):
        yield np.arange(start, min(start + fetch_rows, n_rows))


def block_shuffled(n_rows: int, fetch_rows: int, block_size: int, seed: int, epoch: int) -> Iterator[np.ndarray]:
    """Row ids, int64, of each fetch in the order they are delivered; every row once.

    Memory: one index of 8 bytes a block, and one fetch. Block boundaries lie at multiples of `block_size`, so
    the last block may be shorter; a block larger than a fetch is spread over several.
    """
    rng = np.random.default_rng([seed, epoch])
    blocks = rng.permutation(-(-n_rows // block_size))
    short_by = len(blocks) * block_size - n_rows
    # Place in the shuffled sequence, counted in cells, at which the short last block ends.
    short_end = int(np.flatnonzero(blocks == len(blocks) - 1)[0]) * block_size + block_size - short_by
    for start in range(0, n_rows, fetch_rows):
        place = np.arange(start, min(start + fetch_rows, n_rows))
        place += short_by * (place >= short_end)
        rows = blocks[place // block_size] * block_size + place % block_size
        rng.shuffle(rows)
        yield rows
