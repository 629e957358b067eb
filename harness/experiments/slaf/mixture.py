"""SLAF's mixture of scanners: what it costs against reading in order, and how well it mixes, by two scores.

    python -m harness.experiments.slaf.mixture tahoe-mini

In each repeat every number of scanners, and the sequential order (`use_mixture_of_scanners=False`), reads one epoch of
raw minibatches of 32 cells from stores with fragments of each size, in random order. All else is as in the authors' own
script for these numbers. The library cannot be seeded, so repeats differ. The clock runs from the creation of the
loader, whose thread reads at once, to the last cell; so that epochs are whole, all run in one process.

Scored after the clock: the entropy of each label in a minibatch, and the distance between the numbers of its cells and
to those of the next one, which is the authors' score. Every run appends a record to slaf-mixture.jsonl. About 8 minutes
for 140,000 cells on 2 cores; other fragment sizes than the adapter's are further stores of SLAF in data/stores.
"""

import random
import sys
import time
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from analysis.diversity import distance, entropy
from harness.data.dataset import Dataset
from harness.errors import UserError
from harness.experiments.slaf import table
from harness.records import jsonl, slaf
from harness.records.slaf import Mixture
from harness.run.provenance import of_store, provenance
from loaders.slaf import fragment_cells

BATCH = 32
SEQUENTIAL = {"use_mixture_of_scanners": False, "by_fragment": False, "batches_per_chunk": 50}
MIXED = {"use_mixture_of_scanners": True, "batches_per_chunk": 1, "prefetch_batch_size": 4_194_304}
MOST_SCANNERS = 100  # of the library


def measure(dataset: Dataset, options: Namespace) -> None:
    """Makes the missing stores, and runs and records every setting in every repeat."""
    if max(options.scanners) > MOST_SCANNERS:
        raise UserError(f"SLAF takes at most {MOST_SCANNERS} scanners.")
    default = fragment_cells(dataset)
    sizes = options.fragments or sorted({default, max(1, default // 4)}, reverse=True)
    stores = {size: table.store_of(dataset, size, options.results) for size in sizes}
    settings = [(size, scanners) for size in sizes for scanners in (None, *options.scanners)]
    labels = {name: dataset.labels(name) for name in dataset.label_names}
    shuffled = random.Random(0)
    for repeat in range(options.repeats):
        for size, scanners in shuffled.sample(settings, len(settings)):
            mixture = epoch_of(dataset, stores[size], size, scanners, repeat, labels)
            jsonl.append(options.results / slaf.MIXTURE_FILE, mixture)
            order = f"{scanners} scanner(s)" if scanners else "sequential"
            rate = mixture.cells / mixture.seconds
            table.note(f"repeat {repeat}, fragments of {size:,} cells, {order}: {rate:,.0f} cells/s")


def epoch_of(
    dataset: Dataset, store: Path, size: int, scanners: int | None, repeat: int, labels: dict[str, np.ndarray]
) -> Mixture:
    """One epoch. labels: the codes of every cell, for each label. Raises UserError if a cell came twice or never."""
    array = table.opened(store)
    starts = array.obs["cell_start_index"].to_numpy()
    with_counts = np.flatnonzero(np.diff(starts, append=array.expression.count_rows()))
    batches, passed = read(
        array, SEQUENTIAL if scanners is None else MIXED | {"n_scanners": scanners}, len(with_counts)
    )
    cells = np.sort(np.concatenate(batches))
    if not np.array_equal(cells, with_counts):
        raise UserError("SLAF's loader did not deliver every cell with counts once.")
    facts = provenance("slaf", dataset) | of_store(sorted(path for path in store.rglob("*") if path.is_file()))
    bits = {name: entropy.of_batches(batches, codes, BATCH) for name, codes in labels.items()}
    return Mixture(
        dataset=dataset.name, fragment_cells=size, n_scanners=scanners, repeat=repeat, batch_size=BATCH,
        cells=len(cells), seconds=passed, within_cells=distance.within(batches), across_cells=distance.across(batches),
        bits={name: float(np.nanmean(values)) for name, values in bits.items() if np.isfinite(values).any()},
        random_bits={name: entropy.random_ideal(codes, BATCH) for name, codes in labels.items()}, provenance=facts,
    )  # fmt: skip


def read(array: Any, knobs: dict[str, Any], n_cells: int) -> tuple[list[np.ndarray], float]:
    """(the cells of each minibatch, int64; seconds) of one epoch of `n_cells` cells."""
    from slaf.ml.dataloaders import SLAFDataLoader

    batches, remaining, start = [], n_cells, time.perf_counter()
    loader = SLAFDataLoader(array, batch_size=BATCH, raw_mode=True, verbose=False, **knobs)
    try:
        for batch in loader:
            batches.append(batch["cell_ids"])
            remaining -= len(batch["cell_ids"])
            if remaining <= 0:  # at the end of an epoch the library would wait
                break
        passed = time.perf_counter() - start
    finally:
        table.stop(loader)
    return [np.array(ids, np.int64) for ids in batches], passed


def main(arguments: Sequence[str] | None = None) -> int:
    top = table.parser("harness.experiments.slaf.mixture", __doc__)
    top.add_argument("--repeats", type=table.positive, default=5, metavar="N", help="(default: 5)")
    top.add_argument(
        "--scanners", type=table.positives, default=[1, 4, 16], metavar="N,N",
        help="numbers of scanners beside the sequential order (default: 1,4,16)",
    )  # fmt: skip
    top.add_argument(
        "--fragments", type=table.positives, metavar="N,N",
        help="cells in a fragment (default: those of the adapter's store, and a quarter: 5000,1250 for tahoe-mini)",
    )  # fmt: skip
    return table.run(top, arguments, measure)


if __name__ == "__main__":
    sys.exit(main())
