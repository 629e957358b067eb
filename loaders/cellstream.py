"""cellstream: a compressed frame for each cell, decoded by threads, with exact random access."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from harness.condition import Condition
from harness.data.dataset import Dataset
from harness.machine import host
from loaders.convert import csr, to_output
from loaders.protocol import Batch, Incompatible
from loaders.slabs import csr_slabs

STORE = "cells.csad"
SLAB = 8_192  # cells


class CellStream:
    """The library returns the cells with given ids and has no loop of its own. The adapter draws a permutation for each
    epoch, asks for `batch_size * fetch_factor` cells at once and cuts them into minibatches.

    n_threads: of a call; 0 means one for each core that the process may use. There are packages for Linux on x86-64
    only. Importing the library replaces anndata.read_h5ad by a function that opens its stores, too.
    """

    name = "cellstream"
    imports = ("cellstream", "cellstream.cell")
    store = "csad/1"
    knobs = {"fetch_factor": 256, "n_threads": 0}

    @classmethod
    def broken(cls, condition: Condition) -> dict[str, str]:
        return {}

    @classmethod
    def prepare(cls, dataset: Dataset, path: Path, progress: Callable[[int], None]) -> None:
        """Writes counts with the library's integer codec. Like the library itself, it tries this codec first, and
        starts again with the codec for fractions if a value is not a count.

        Memory: two copies of a block of 65,536 cells, or of 64 million values if these are fewer.
        """
        from cellstream.errors import NonIntegerCountsError

        try:
            _write(dataset, path / STORE, "uint32", progress)
        except NonIntegerCountsError:
            _write(dataset, path / STORE, "float32", lambda cells: None)
            progress(dataset.n_cells)

    @classmethod
    def open(cls, dataset: Dataset, path: Path, condition: Condition, *, rows: bool) -> "CellStream":
        if condition.workers:
            raise Incompatible("it reads with threads inside one process; set n_threads instead of workers")
        return cls(path, condition, rows)

    @classmethod
    def code(cls, dataset: Dataset, path: Path, condition: Condition) -> str:
        """See `Loader.code`."""
        knobs = cls.knobs | dict(condition.knobs)
        order = "np.random.permutation(len(obs))" if condition.order == "random" else "np.arange(len(obs))"
        x = "fetch[i : i + batch_size]" + (".toarray()" if condition.output == "dense" else "")
        return f"""import anndata as ad
import cellstream
import numpy as np
import pandas as pd

# The store was written once, with cellstream.cell.CellArchiveWriter.
store = cellstream.open({str(path / STORE)!r})
paths = {[str(path) for path in dataset.paths]}
obs = pd.concat([ad.read_h5ad(path, backed="r").obs[{list(dataset.label_names)}] for path in paths])
batch_size, fetch_size = {condition.batch_size}, {condition.batch_size * knobs["fetch_factor"]}
for epoch in range(10):
    order = {order}
    for start in range(0, len(order), fetch_size):
        rows = order[start : start + fetch_size]
        fetch = store.gather_rows(rows, n_threads={knobs["n_threads"] or host.available_cores()})
        for i in range(0, len(rows), batch_size):
            {x}, obs.iloc[rows[i : i + batch_size]]  # (cells, genes), and their labels
"""

    def __init__(self, path: Path, condition: Condition, rows: bool) -> None:
        import cellstream

        knobs = self.knobs | dict(condition.knobs)
        self.condition, self.rows = condition, rows
        self.fetch_rows = condition.batch_size * knobs["fetch_factor"]
        self.threads = knobs["n_threads"] or host.available_cores()
        self.store = cellstream.open(path / STORE)

    def epoch(self, index: int) -> Iterator[Batch]:
        size, (n_cells, n_genes) = self.condition.batch_size, self.store.shape
        order = np.arange(n_cells)
        if self.condition.order == "random":
            np.random.default_rng([self.condition.seed, index]).shuffle(order)
        for start in range(0, n_cells, self.fetch_rows):
            ids = order[start : start + self.fetch_rows]
            fetch = self.store.gather_rows(ids, n_threads=self.threads)
            for i in range(0, len(ids), size):
                edges = fetch.indptr[i : i + size + 1]
                place = slice(edges[0], edges[-1])
                x = csr(fetch.data[place], fetch.indices[place], edges - edges[0], n_genes)
                yield Batch(to_output(x, self.condition.output), ids[i : i + size] if self.rows else None)

    def close(self) -> None:
        self.store.close()


def _write(dataset: Dataset, path: Path, value_dtype: str, progress: Callable[[int], None]) -> None:
    import pandas as pd
    from cellstream.cell import CellArchiveWriter

    # The harness has checked that the files share their genes. Names may repeat, so numbers replace them.
    obs, genes = (pd.DataFrame(index=np.arange(n).astype(str)) for n in (dataset.n_cells, dataset.n_genes))
    with CellArchiveWriter(path, n_vars=dataset.n_genes, value_dtype=value_dtype) as writer:
        for first, slab in csr_slabs(dataset, SLAB):
            writer.add_block(csr(*slab, dataset.n_genes))
            progress(first + len(slab.indptr) - 1)
        writer.finalize(obs=obs, var=genes)
