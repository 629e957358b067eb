"""What each of the ways in which this loader is fast is worth: switched off alone, and compared with all of them on.

    python -m loaders.native.ablation tahoe-mini

On files in the page cache, so of decoding and not of the disk. Each way is measured on and off in turn, three times.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np

from harness.catalogue import load
from harness.condition import Timing
from harness.dataset import Dataset
from harness.measure import measure
from loaders.native import BlockLoader, BlockShuffling, codecs, kernel, matrix, open_h5ad

TIMING = Timing(warmup_s=1, measure_s=2)
REPEATS = 3
SETTING = {"block_size": 16, "fetch_factor": 64, "aligned": True}

WAYS: dict[str, tuple[dict[str, Any], dict[tuple[Any, str], Any]]] = {
    "blocks that follow the chunks": ({"aligned": False}, {}),
    "only the head of a chunk whose tail is not wanted": ({}, {(kernel, "HAS_HEADS"): False}),
    "a compiled loop over chunks": ({}, {(codecs, "C_FUNCTIONS"): {}}),
    "tasks of 32 chunks, not of 8": ({}, {(matrix, "PIECES_PER_TASK"): 8}),
}
"""By name: the setting that differs, and what is patched to switch the way off."""


def rate(dataset: Dataset, block_size: int, fetch_factor: int, aligned: bool) -> float:
    """Cells/s at batch 64."""
    source = open_h5ad(dataset.paths)
    loader = BlockLoader(source, sampler=BlockShuffling(block_size, aligned), fetch_factor=fetch_factor)
    try:
        trace = measure(loader, TIMING, time.perf_counter, epoch_rows=dataset.n_cells)
    finally:
        loader.close()
    return trace.rows / trace.seconds


@contextmanager
def without(patched: dict[tuple[Any, str], Any]) -> Iterator[None]:
    with ExitStack() as patches:
        for (module, name), value in patched.items():
            patches.enter_context(patch.object(module, name, value))
        yield


def compare(dataset: Dataset, way: str, say: Callable[[str], None]) -> None:
    changed, patched = WAYS[way]
    rates = []
    for _ in range(REPEATS):
        with without(patched):
            off = rate(dataset, **(SETTING | changed))
        rates.append((off, rate(dataset, **SETTING)))
    off, with_it = np.median(rates, axis=0)
    ratios = sorted(b / a for a, b in rates)
    say(f"| {way} | {off:,.0f} | {with_it:,.0f} | {np.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}) |")


def main() -> None:
    dataset = load(sys.argv[1] if len(sys.argv) > 1 else "tahoe-mini")
    print("| way | without, cells/s | with, cells/s | times |\n| --- | ---: | ---: | ---: |")
    for way in WAYS:
        compare(dataset, way, print)


if __name__ == "__main__":
    main()
