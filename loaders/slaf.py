"""Adapter of SLAF, which stores (cell, gene, value) records in Lance fragments and reads them in a background thread.

SLAF yields its raw batches as tables. The adapter converts them to CSR. It has tokenizers of its own; docs/method.md
says how their tokens differ from those of Geneformer and scGPT.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from io import StringIO
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix

from harness.condition import Condition
from harness.data.dataset import Dataset
from loaders.convert import csr, to_output
from loaders.protocol import Batch, Incompatible
from loaders.slabs import csr_slabs
from loadstone.tokens import TokenBatch

STORE = "cells.slaf"
FRAGMENT_CELLS = 5_000  # per fragment: the default of the library's converter
FRAGMENTS = 16, 10_000
"""The minimum (if there are enough cells) and the maximum number of fragments of a store.

Minimum: by default the library has 16 scanners, each for another fragment. Maximum: each fragment is appended with a
list of all earlier ones; with 100,000 fragments, the lists would be larger than the cells.
"""
SLAB = 8_192  # cells
COUNT_MAX, GENES_MAX = 2**16 - 1, 2**16
MAX_GENES = {"geneformer": 2_048, "scgpt": 1_024}
"""Of a tokenised cell: the defaults of the library's tokenizers."""


class Slaf:
    """A read takes up to `prefetch_batch_size` counts, `batches_per_chunk` times, from each of `n_scanners` fragments
    chosen at random, and shuffles their cells together.

    Every epoch creates a loader of the library, and drops it when all cells with counts have been delivered, because
    the library waits 80 s before it ends an epoch. If `use_mixture_of_scanners` is False, fragments are read one after
    another instead, in the same order in every epoch. Its queue keeps its default size: if a queue is full, the library
    drops cells.
    """

    name = "slaf"
    imports = ("slaf", "slaf.ml.dataloaders", "torch")
    store = "slaf/2"
    objects = True
    tokenises = True
    knobs = {
        **{"n_scanners": 16, "use_mixture_of_scanners": True, "prefetch_batch_size": 4_194_304},
        **{"batches_per_chunk": 1, "parallelize_fragment_reads": False},
    }

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
    @contextmanager
    def importing(cls) -> Iterator[None]:
        """Turns off the library's log, because the import prints a greeting."""
        from loguru import logger

        os.environ.setdefault("LANCE_LOG", "error")
        logger.disable("slaf")
        yield

    @classmethod
    def prepare(cls, dataset: Dataset, path: Path, progress: Callable[[int], None], cells: int | None = None) -> None:
        """Merges the files into one virtual h5ad and converts that, with `cells` per fragment (None: `fragment_cells`).
        From several files, SLAF would lose the last cell of each.

        Memory: the obs table, and the cells of one slab or one fragment. SLAF stores values as 16-bit integers by
        default, after checking the first 10,000. Here it does so only if X is CSR and all values are whole numbers from
        0 to COUNT_MAX; otherwise as float32. Raises Incompatible if there are more than GENES_MAX genes.
        """
        if dataset.n_genes > GENES_MAX:
            raise Incompatible(f"its conversion numbers genes in 16 bits, and there are {dataset.n_genes:,}")
        with cls.importing():
            from slaf.data.converter import SLAFConverter

        are_counts = dataset.x_format == "csr"  # the library's check for counts fails on a dense X
        n_genes = np.zeros(dataset.n_cells, np.int64)
        for first, slab in csr_slabs(dataset, SLAB):
            n_genes[first : first + len(slab.indptr) - 1] = np.diff(slab.indptr)
            in_range = (slab.data >= 0) & (slab.data <= COUNT_MAX)
            are_counts = are_counts and bool(np.all(in_range & (slab.data == np.floor(slab.data))))
        merged = path / "merged.h5ad"
        _write_virtual(dataset, n_genes, merged)
        converter = SLAFConverter(chunk_size=cells or fragment_cells(dataset), use_optimized_dtypes=are_counts)
        with redirect_stderr(StringIO()):  # the library's progress bars cannot be turned off
            converter.convert(str(merged), str(path / STORE))
        merged.unlink()
        progress(dataset.n_cells)

    @classmethod
    def open(cls, dataset: Dataset, path: Path, condition: Condition, *, rows: bool) -> "Slaf":
        if condition.workers:
            raise Incompatible("it reads in a thread, and each of several workers would read every cell")
        if condition.order == "stream":
            raise Incompatible("it always shuffles the cells that it reads")
        return cls(dataset, path, condition, rows)

    def __init__(self, dataset: Dataset, path: Path, condition: Condition, rows: bool) -> None:
        with self.importing():
            from slaf import SLAFArray

        self.condition, self.rows, self.n_genes = condition, rows, dataset.n_genes
        self.knobs, self.loader = _knobs(condition), None
        self.fetch_rows = fragment_cells(dataset)
        if self.knobs["use_mixture_of_scanners"]:
            counts = self.knobs["prefetch_batch_size"] * self.knobs["batches_per_chunk"]
            cells = min(self.fetch_rows, counts * dataset.n_cells // max(1, dataset.nnz))
            self.fetch_rows = max(1, self.knobs["n_scanners"] * cells)  # fewer once fragments have run out
        self.array = SLAFArray(dataset.url(path / STORE) if dataset.bucket else str(path / STORE))
        # Accessing obs waits for the thread that loads it. Without obs, the reading thread would die silently.
        starts = self.array.obs["cell_start_index"].to_numpy()
        self.n_cells = np.count_nonzero(np.diff(starts, append=self.array.expression.count_rows()))

    def epoch(self, index: int) -> Iterator[Batch]:
        from slaf.ml.dataloaders import SLAFDataLoader

        kind = self.condition.tokens
        form = {"tokenizer_type": kind, "max_genes": MAX_GENES[kind]} if kind else {"raw_mode": True}
        batch_size = self.condition.batch_size
        self.loader = SLAFDataLoader(self.array, batch_size=batch_size, verbose=False, **form, **self.knobs)
        remaining = self.n_cells
        try:
            for batch in self.loader if remaining else ():
                if kind:
                    x, ids = _tokens(batch), batch["cell_ids"].numpy()
                else:
                    counts, ids = self._csr(batch["x"])
                    x = to_output(counts, self.condition.output)
                yield Batch(x, ids if self.rows else None)
                remaining -= len(ids)
                if not remaining:
                    return
        finally:
            self.close()
        if remaining:
            raise RuntimeError(f"the library ended an epoch {remaining:,} cells early")

    def _csr(self, table) -> tuple[csr_matrix, np.ndarray]:
        """(CSR matrix, row ids) of a raw batch: a table with one record for each stored value.

        The records of a cell are adjacent, even if the cells are shuffled.
        """
        cells = table["cell_integer_id"].to_numpy()
        indptr = np.concatenate([[0], np.flatnonzero(np.diff(cells)) + 1, [len(cells)]])
        genes = table["gene_integer_id"].to_numpy().astype(np.int32, copy=False)
        values = table["value"].to_numpy().astype(np.float32, copy=False)
        ids = cells[indptr[:-1]].astype(np.int64, copy=False)
        return csr(values, genes, indptr, self.n_genes), ids

    def close(self) -> None:
        """Stops the reading thread and waits until it has ended; the library itself waits for at most one second."""
        if self.loader is not None:
            prefetcher = self.loader._dataset.prefetcher  # there is no public way to stop it
            prefetcher.stop()
            prefetcher.worker_thread.join()
            self.loader = None


def _tokens(batch) -> TokenBatch:
    """The tensors of a tokenised batch, as arrays that share their memory."""
    values = batch["values"].numpy() if "values" in batch else None
    return TokenBatch(batch["input_ids"].numpy(), batch["attention_mask"].numpy(), values)


def _knobs(condition: Condition) -> dict[str, int | bool]:
    return Slaf.knobs | dict(condition.knobs)


def fragment_cells(dataset: Dataset) -> int:
    """The number of cells in each fragment of the store."""
    most, least = (-(-dataset.n_cells // fragments) for fragments in FRAGMENTS)
    return max(min(FRAGMENT_CELLS, most), least)


def _write_virtual(dataset: Dataset, n_genes: np.ndarray, path: Path) -> None:
    """Writes an h5ad of all cells, with X as HDF5 virtual data sets over the files, and the column n_genes in obs.

    n_genes: int64, the number of stored values of each cell. Without this column, SLAF would read all of X once more
    to count these values.
    """
    import anndata as ad
    import h5py
    import pandas as pd

    obs = pd.DataFrame({"n_genes": n_genes}, index=np.arange(dataset.n_cells).astype(str))
    # The harness has checked that the files share their genes. Gene names may repeat, so numbers replace them.
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
    """An HDF5 virtual layout that concatenates the arrays called `name` of all files."""
    import h5py

    layout, start = h5py.VirtualLayout(shape, dtype), 0
    for path in dataset.paths:
        with h5py.File(path) as file:
            source = h5py.VirtualSource(file[name])
        if stop := source.shape[0]:
            layout[start : start + stop] = source
            start += stop
    return layout
