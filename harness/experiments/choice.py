"""Prints what our loader chooses by itself for a data set: the block, the fetch, and how well they mix its labels.

python -m harness.experiments.choice tahoe-chunks
"""

import time

from harness.experiments.command import data_set
from loadstone import BlockLoader, open_h5ad
from loadstone.sampling.mixing import bits_short

MEMORY = 256_000_000, 1_000_000_000  # bytes


def main() -> None:
    dataset = data_set(__doc__)
    labels = {name: dataset.labels(name) for name in dataset.label_names}
    source = open_h5ad(dataset.paths)
    for memory in MEMORY:
        start = time.perf_counter()
        loader = BlockLoader(source, labels=labels, memory=memory)
        seconds = time.perf_counter() - start
        block, fetch = loader.sampler.block_size, loader.fetch_rows // loader.batch_size
        print(f"memory={memory:,}: block {block}, fetch factor {fetch}, chosen in {seconds:.2f} s")
        order = loader.sampler.order(source, None, len(source), loader.fetch_rows, loader.seed, 0)
        for name, codes in labels.items():
            short, error = bits_short(order, codes, loader.batch_size)
            print(f"  {name}: {short:.3f} bits short of random (standard error {error:.3f})")
    source.close()


if __name__ == "__main__":
    main()
