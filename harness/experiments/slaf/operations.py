"""The operations whose cost SLAF's first post prints by the number of cells or batches at once: its three laws.

Ranking is the library's window (the dense rank of polars over cells, a filter, and the genes of each cell), shuffling
its `RandomShuffle` (`partition_by` cells, a shuffled list, minibatches joined again), and reading is Lance's
`to_batches` into one table of polars. Its batches have 8,192 rows.

The post does not say whether a reading of its table starts anew. Its times grow little with the rows, as if each opened
the table; so both are measured, opening the table for each chunk and going on where the last one ended.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

SIZES = {
    "ranking": (32, 64, 128, 256, 512, 1_024),
    "shuffling": (100, 500, 1_000, 2_000, 5_000),
    "reading": (10, 25, 50, 100, 200),
}
OPENED, GOING_ON = "table opened anew", "scan going on"
BATCH, MAX_GENES = 32, 2_048

Work = dict[tuple[str, str, int], Callable[[], int]]
"""By operation, method and size: does it once, and returns the number of its cells, or rows for reading."""


def operations(array: Any, starts: np.ndarray) -> Work:
    """The operations on an opened SLAFArray, without the sizes that its table has too few cells or batches for.

    starts: the first row of each cell, and the number of rows: int64, shape (n + 1,).
    """
    import lance
    import polars as pl
    from slaf.core.tabular_schema import SLAF_LANCE_COO_SCHEMA
    from slaf.ml.aggregators import GeneformerWindow
    from slaf.ml.samplers import RandomShuffle

    path, rows = array.expression.uri, array.expression.count_rows()
    ends = starts[1:][np.diff(starts) > 0]  # of the cells with counts
    most = min(len(ends), max(SIZES["shuffling"]))
    cells = pl.from_arrow(array.expression.to_table(limit=int(ends[most - 1])))
    window, shuffle = GeneformerWindow(), RandomShuffle()

    def rank(part: pl.DataFrame) -> int:
        return len(window.apply(part, SLAF_LANCE_COO_SCHEMA, MAX_GENES))

    def shuffled(part: pl.DataFrame, size: int) -> int:
        shuffle.apply(part, 0, batch_size=BATCH)
        return size

    def read(scan: Iterator[Any], batches: int) -> int:
        parts = [pl.from_arrow(batch) for _, batch in zip(range(batches), scan, strict=False)]
        return len(pl.concat(parts))

    def endless() -> Iterator[Any]:
        while True:
            yield from lance.dataset(path).to_batches()

    works: Work = {}
    for size in SIZES["ranking"]:
        if size <= most:
            works["ranking", "polars", size] = lambda part=cells[: ends[size - 1]]: rank(part)
    for size in SIZES["shuffling"]:
        if size <= most:
            works["shuffling", "partition_by", size] = lambda part=cells[: ends[size - 1]], n=size: shuffled(part, n)
    scan = endless()
    batch_rows = len(next(endless()))
    for size in SIZES["reading"]:
        if size * batch_rows <= rows:
            works["reading", OPENED, size] = lambda n=size: read(lance.dataset(path).to_batches(), n)
            works["reading", GOING_ON, size] = lambda n=size: read(scan, n)
    return works
