"""SLAF: Lance fragments of (cell, gene, value), read in a thread; its raw batches are such tables, and become CSR."""

import os
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix

from harness.condition import Condition
from harness.data.dataset import Dataset
from loaders.convert import to_output
from loaders.protocol import Batch, Incompatible
from loaders.slabs import csr_slabs

STORE = "cells.slaf"
FRAGMENT_CELLS = 1_024  # with its 16 scanners, a buffer of 16,384 cells
FRAGMENTS = 48, 10_000
"""At the least, as far as there are cells: three times its scanners, or there is nothing to mix. At the most: every
fragment is appended with a list of all those before it, and of 100,000 the lists would be larger than the cells."""
SLAB = 8_192  # cells
COUNT_MAX, GENES_MAX = 2**16 - 1, 2**16


class Slaf:
    """A read takes one fragment from each of `n_scanners` chosen at random and shuffles their cells; a new loader is
    made for every epoch, and let go once every cell with counts has come: the library waits 80 s before it ends one.

    `use_mixture_of_scanners` False reads one fragment after another instead, in the same order in every epoch.
    """

    name = "slaf"
    imports = ("slaf", "torch")
    store = "slaf/1"
    knobs = {"n_scanners": 16, "use_mixture_of_scanners": True}

    @classmethod
    def broken(cls, condition: Condition) -> dict[str, str]:
        always = {
            "exact": "a cell without counts is not in its table, and never comes",
            "batches": "every read ends with a batch that is not full",
        }
        if _knobs(condition)["use_mixture_of_scanners"]:
            return always | {"seeded": "it draws its scanners from numpy's global state, which it does not seed"}
        return always | {"reshuffled": "its seed is 42 in every epoch"}

    @classmethod
    def prepare(cls, dataset: Dataset, path: Path, progress: Callable[[int], None]) -> None:
        """Converts one h5ad that refers to all files: of several the library loses the last cell of each.

        In memory are the obs table and a fragment's cells. A value becomes a 16-bit count, as its authors have it,
        only if all are such: by itself the library would look at the first 10,000.
        """
        if dataset.n_genes > GENES_MAX:
            raise Incompatible(f"its conversion numbers genes in 16 bits, and there are {dataset.n_genes:,}")
        _be_silent()
        from slaf.data.converter import SLAFConverter

        counts = dataset.x_format == "csr"  # of a dense X it cannot tell, and fails where it tries
        n_genes = np.zeros(dataset.n_cells, np.int64)
        for first, slab in csr_slabs(dataset, SLAB):
            n_genes[first : first + len(slab.indptr) - 1] = np.diff(slab.indptr)
            in_range = (slab.data >= 0) & (slab.data <= COUNT_MAX)
            counts = counts and bool(np.all(in_range & (slab.data == np.floor(slab.data))))
        merged = path / "merged.h5ad"
        _refer(dataset, n_genes, merged)
        converter = SLAFConverter(chunk_size=_fragment_cells(dataset), use_optimized_dtypes=counts)
        with redirect_stderr(StringIO()):  # its progress bars have no switch
            converter.convert(str(merged), str(path / STORE))
        merged.unlink()
        progress(dataset.n_cells)

    @classmethod
    def open(cls, dataset: Dataset, path: Path, condition: Condition, *, rows: bool) -> "Slaf":
        if condition.workers:
            raise Incompatible("it reads in a thread, and each of several workers would read every cell")
        if condition.order == "stream":
            raise Incompatible("it shuffles the cells of whatever it reads, and keeps no order")
        return cls(dataset, path, condition, rows)

    def __init__(self, dataset: Dataset, path: Path, condition: Condition, rows: bool) -> None:
        _be_silent()
        from slaf import SLAFArray

        self.condition, self.rows, self.n_genes = condition, rows, dataset.n_genes
        self.knobs, self.loader = _knobs(condition), None
        scanners = self.knobs["n_scanners"] if self.knobs["use_mixture_of_scanners"] else 1
        self.fetch_rows = scanners * _fragment_cells(dataset)  # at the most: fewer, once scanners have run out
        self.array = SLAFArray(str(path / STORE))
        # Asking for obs waits for the thread that loads it; without it the reading thread would die in silence.
        starts = self.array.obs["cell_start_index"].to_numpy()
        self.n_cells = np.count_nonzero(np.diff(starts, append=self.array.expression.count_rows()))

    def epoch(self, index: int) -> Iterator[Batch]:
        from slaf.ml.dataloaders import SLAFDataLoader

        self.loader = SLAFDataLoader(
            self.array, batch_size=self.condition.batch_size, raw_mode=True, verbose=False, **self.knobs
        )
        left = self.n_cells
        try:
            for batch in self.loader if left else ():
                x, ids = self._csr(batch["x"])
                yield Batch(to_output(x, self.condition.output), ids if self.rows else None)
                left -= len(ids)
                if not left:
                    return
        finally:
            self.close()
        if left:
            raise RuntimeError(f"the library ended an epoch {left:,} cells early")

    def _csr(self, table) -> tuple[csr_matrix, np.ndarray]:
        """Its table as a matrix, and the row ids. A cell's values lie together: so its own shuffle leaves them."""
        cells = table["cell_integer_id"].to_numpy()
        indptr = np.concatenate([[0], np.flatnonzero(np.diff(cells)) + 1, [len(cells)]])
        genes = table["gene_integer_id"].to_numpy().astype(np.int32)
        values = table["value"].to_numpy().astype(np.float32)
        ids = cells[indptr[:-1]].astype(np.int64)
        return csr_matrix((values, genes, indptr), shape=(len(ids), self.n_genes)), ids

    def close(self) -> None:
        """Waits for the end of the read under way: the library's own stop leaves it running after a second."""
        if self.loader is not None:
            prefetcher = self.loader._dataset.prefetcher  # it has no public way to stop
            prefetcher.stop()
            prefetcher.worker_thread.join()
            self.loader = None


def _knobs(condition: Condition) -> dict[str, int | bool]:
    return Slaf.knobs | dict(condition.knobs)


def _fragment_cells(dataset: Dataset) -> int:
    most, least = (-(-dataset.n_cells // fragments) for fragments in FRAGMENTS)
    return max(min(FRAGMENT_CELLS, most), least)


def _be_silent() -> None:
    """Called before the library is imported, which greets."""
    from loguru import logger

    os.environ.setdefault("LANCE_LOG", "error")
    logger.disable("slaf")


def _refer(dataset: Dataset, n_genes: np.ndarray, path: Path) -> None:
    """An h5ad of all cells whose X lies in the data set's own files; its obs says how many genes each cell has.

    The library believes that column, and so does not count by reading all of X once more.
    """
    import anndata as ad
    import h5py
    import pandas as pd

    obs = pd.DataFrame({"n_genes": n_genes}, index=np.arange(dataset.n_cells).astype(str))
    # The harness has seen that the files share their genes. Numbered, they need not have names that are unique.
    var = pd.DataFrame(index=np.arange(dataset.n_genes).astype(str))
    ad.AnnData(obs=obs, var=var).write_h5ad(path)
    with h5py.File(path, "a") as file:
        if dataset.x_format == "dense":
            shape = (dataset.n_cells, dataset.n_genes)
            x = file.create_virtual_dataset("X", _joined(dataset, "X", shape, np.float32))
            x.attrs.update({"encoding-type": "array", "encoding-version": "0.2.0"})
            return
        x = file.create_group("X")
        x.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0"})
        x.attrs["shape"] = np.array([dataset.n_cells, dataset.n_genes])
        for part, dtype in (("data", np.float32), ("indices", np.int32)):
            x.create_virtual_dataset(part, _joined(dataset, f"X/{part}", (dataset.nnz,), dtype))
        x["indptr"] = np.concatenate([[0], np.cumsum(n_genes)])


def _joined(dataset: Dataset, name: str, shape: tuple[int, ...], dtype: type):
    """The arrays called `name` of the files, one after another."""
    import h5py

    layout, start = h5py.VirtualLayout(shape, dtype), 0
    for path in dataset.paths:
        with h5py.File(path) as file:
            source = h5py.VirtualSource(file[name])
        if stop := source.shape[0]:
            layout[start : start + stop] = source
            start += stop
    return layout
