"""What decoding alone would allow: a data set's chunks inflated from memory, and nothing else.

    python -m loaders.native.ceiling tahoe-mini

Beside it what the loader reaches in blocks of 512 and buffers of 16,384 cells, measured in turn with it, and its share:
what reading, copying, shuffling and Python leave. Files are in the page cache. All cores the process may use take
part; `taskset -c 0` leaves it one.
"""

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

import numpy as np

from harness.catalogue import load
from harness.dataset import Dataset
from harness.host import available_cores
from loaders.native.ablation import rate
from loaders.native.arrays import Chunked
from loaders.native.h5ad import open_h5ad

HELD_BYTES = 400_000_000  # of compressed chunks held in memory
SECONDS = 4.0
REPEATS = 3
SETTING = {"block_size": 512, "fetch_factor": 256, "aligned": True, "output": "csr"}


def decoded_cells_per_s(dataset: Dataset, seconds: float = SECONDS) -> float:
    """Cells/s, with one thread a core, over chunks spread evenly over the data set, for at least so long."""
    source = open_h5ad(dataset.paths)
    arrays = [array for part in source.parts for array in (part.data, part.indices)]
    if not all(isinstance(array, Chunked) for array in arrays):
        raise ValueError("X is not in chunks that are decoded apart from each other")
    step = max(1, round(dataset.size_bytes / HELD_BYTES))
    held, elements = [], 0
    for array in arrays:
        for i in range(0, array.length // array.chunk, step):
            held.append((array.codec.decode, array.packed(i)))
            elements += array.chunk
    source.close()
    cores = available_cores()
    shares = [held[core::cores] for core in range(cores)]

    def decode(share: list) -> int:
        rounds, stop = 0, time.perf_counter() + seconds
        while time.perf_counter() < stop:
            for inflate, packed in share:
                inflate(packed)
            rounds += 1
        return rounds * len(share)

    with ThreadPoolExecutor(cores) as pool:
        list(pool.map(lambda share: [inflate(packed) for inflate, packed in islice(share, 8)], shares))
        start = time.perf_counter()
        done = sum(pool.map(decode, shares))
        elapsed = time.perf_counter() - start
    # Each cell's values and indices: two elements for each of its non-zero counts.
    per_cell = 2 * dataset.nnz / dataset.n_cells
    return done * (elements / len(held)) / per_cell / elapsed


def main() -> None:
    dataset = load(sys.argv[1] if len(sys.argv) > 1 else "tahoe-mini")
    rate(dataset, **SETTING)  # brings the files into the page cache
    pairs = [(decoded_cells_per_s(dataset), rate(dataset, **SETTING)) for _ in range(REPEATS)]
    ceiling, reached = np.median(pairs, axis=0)
    shares = sorted(mine / alone for alone, mine in pairs)
    print(
        f"cores {available_cores()}: decoding alone {ceiling:,.0f} cells/s, native {reached:,.0f}, "
        f"a share of {np.median(shares):.0%} ({shares[0]:.0%} to {shares[-1]:.0%})"
    )


if __name__ == "__main__":
    main()
