"""Measures the throughput of our loader as a share of the rate of decoding alone.

    python -m harness.experiments.decoding_share tahoe-mini

The difference is the cost of reading, copying, shuffling and Python. The loader and decoding alone are measured
alternately. Blocks have up to 512 cells, a fetch has 16,384 cells, and the files are in the page cache. All cores that
the process may use take part; `taskset -c 0` limits it to one. `python -m harness ceiling` measures other stores too,
and the disk.
"""

import numpy as np

from harness.experiments.ablation import rate
from harness.experiments.command import data_set
from harness.machine.host import available_cores
from loaders.decoding import decoded_cells_per_s
from loadstone import open_h5ad

SECONDS = 2.0
REPEATS = 7
SETTING = {"block_size": 512, "fetch_factor": 256, "aligned": True, "output": "csr"}


def main() -> None:
    dataset = data_set(__doc__)
    rate(dataset, **SETTING)  # reads the files into the page cache
    source = open_h5ad(dataset.paths)
    pairs = [(decoded_cells_per_s(source, SECONDS), rate(dataset, **SETTING)) for _ in range(REPEATS)]
    source.close()
    ceiling, reached = np.median(pairs, axis=0)
    shares = sorted(loader / decoding for decoding, loader in pairs)
    print(
        f"cores {available_cores()}: decoding alone {ceiling:,.0f} cells/s, native {reached:,.0f}, "
        f"a share of {np.median(shares):.0%} ({shares[0]:.0%} to {shares[-1]:.0%})"
    )


if __name__ == "__main__":
    main()
