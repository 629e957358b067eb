"""Adapter of BioNeMo-SCDL, NVIDIA's data set of memory-mapped CSR arrays, which is read one cell at a time."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix

from harness.condition import Condition
from harness.data.dataset import Dataset
from loaders.convert import to_output
from loaders.protocol import Batch, Incompatible

WHOLE = "whole"  # the folder in a store that holds the cells of all files
PAGED_MB = 500
BLOCK_ROWS = 100_000


class BioNeMo:
    """SCDL's collate function returns a CSR tensor whose last column is the last gene that occurs in the batch. The
    adapter widens this tensor to all genes.

    The store holds all values of X, in the order of the files.
    """

    name = "bionemo"
    imports = ("bionemo.scdl", "torch")
    store = "scdl/1"
    knobs = {}

    @classmethod
    def broken(cls, condition: Condition) -> dict[str, str]:
        return {}

    @classmethod
    def prepare(cls, dataset: Dataset, path: Path, progress: Callable[[int], None]) -> None:
        """Converts one file at a time and appends it to the store. So the arrays of at most one file are on disk twice.

        Memory: the obs tables, and of the current file either all cells, if the file has at most PAGED_MB megabytes, or
        BLOCK_ROWS rows. Raises Incompatible if X is dense.
        """
        _refuse_dense(dataset)
        from bionemo.scdl.io.single_cell_memmap_dataset import SingleCellMemMapDataset

        def convert(folder: Path, source: Path) -> SingleCellMemMapDataset:
            return SingleCellMemMapDataset(
                str(folder),
                str(source),
                use_X_not_raw=True,
                # SCDL opens paged files for writing. Small files may be read-only, so they are read whole.
                paginated_load_cutoff=PAGED_MB,
                load_block_row_size=BLOCK_ROWS,
            )

        whole = convert(path / WHOLE, dataset.paths[0])
        progress(dataset.lengths[0])
        for source, done in zip(dataset.paths[1:], dataset.offsets[2:].tolist(), strict=True):
            whole.concat(convert(path / "part", source), destroy_on_copy=True)
            shutil.rmtree(path / "part")
            progress(done)

    @classmethod
    def open(cls, dataset: Dataset, path: Path, condition: Condition, *, rows: bool) -> "BioNeMo":
        _refuse_dense(dataset)
        return cls(dataset, path, condition, rows)

    def __init__(self, dataset: Dataset, path: Path, condition: Condition, rows: bool) -> None:
        import torch
        from bionemo.scdl.io.single_cell_memmap_dataset import SingleCellMemMapDataset
        from bionemo.scdl.util.torch_dataloader_utils import collate_sparse_matrix_batch

        self.condition, self.rows, self.n_genes = condition, rows, dataset.n_genes
        cells = SingleCellMemMapDataset(str(path / WHOLE))
        self.generator = torch.Generator()
        sampler = torch.utils.data.RandomSampler(cells, generator=self.generator)
        self.loader = torch.utils.data.DataLoader(
            _WithRowIds(cells) if rows else cells,
            batch_size=condition.batch_size,
            sampler=sampler if condition.order == "random" else None,
            num_workers=condition.workers,
            collate_fn=_CollateWithRowIds(collate_sparse_matrix_batch) if rows else collate_sparse_matrix_batch,
            # A memory map pickled for a spawned worker becomes a copy of the whole file.
            multiprocessing_context="fork" if condition.workers else None,
        )
        self.fetch_rows = condition.batch_size

    def epoch(self, index: int) -> Iterator[Batch]:
        self.generator.manual_seed(int(np.random.SeedSequence([self.condition.seed, index]).generate_state(1)[0]))
        for batch in self.loader:
            x, ids = batch if self.rows else (batch, None)
            parts = (x.values().numpy(), x.col_indices().numpy(), x.crow_indices().numpy())
            yield Batch(to_output(csr_matrix(parts, shape=(x.shape[0], self.n_genes)), self.condition.output), ids)

    def close(self) -> None:
        self.loader = None


class _WithRowIds:
    """An SCDL data set whose items are pairs (SCDL's item for the cell, row id)."""

    def __init__(self, cells) -> None:
        self.cells = cells

    def __len__(self) -> int:
        return len(self.cells)

    def __getitem__(self, i: int):
        return self.cells[i], i


class _CollateWithRowIds:
    """A collate function for the items of `_WithRowIds`. Returns (`collate` of the cells, int64 row ids)."""

    def __init__(self, collate) -> None:
        self.collate = collate

    def __call__(self, items):
        cells, ids = zip(*items, strict=True)
        return self.collate(list(cells)), np.array(ids, np.int64)


def _refuse_dense(dataset: Dataset) -> None:
    if dataset.x_format == "dense":
        raise Incompatible("its conversion takes no dense X")
