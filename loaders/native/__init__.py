"""Our loader: block sampling with batched fetching, from h5ad files as they are or from others' stores."""

from collections.abc import Iterator
from copy import copy
from functools import cache
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix

from harness.condition import Condition
from harness.dataset import Dataset, natural
from harness.host import available_cores
from loaders.annbatch import COLLECTION, AnnBatch, AnnBatchUnshuffled
from loaders.bionemo import WHOLE, BioNeMo
from loaders.huggingface import HuggingFace
from loaders.native import arrow, h5ad, scdl, zarr
from loaders.native.dense import DenseBatches
from loaders.native.fetch import read_ahead
from loaders.native.matrix import Matrix, Part, Rows
from loaders.native.sampling import BlockShuffled, Streamed, fetches
from loaders.protocol import UNCONVERTED, Batch, Incompatible


class Native:
    """Reads `batch_size * fetch_factor` rows at a time, in blocks of up to `block_size` consecutive rows.

    `aligned`: blocks break no storage chunk that need not be broken, and so may be some rows shorter.
    """

    name = "native"
    imports = ()
    store = UNCONVERTED
    knobs = {"block_size": 16, "fetch_factor": 256, "aligned": True}

    @classmethod
    def broken(cls, condition: Condition) -> dict[str, str]:
        return {}

    @classmethod
    def parts(cls, dataset: Dataset, path: Path) -> list[Part]:
        return [h5ad.open_part(file) for file in dataset.paths]

    @classmethod
    def open(cls, dataset: Dataset, path: Path, condition: Condition, *, rows: bool) -> "Native":
        if condition.workers:
            raise Incompatible("it reads with threads inside one process; say cores, not workers")
        if dataset.x_format != "csr" and cls.store != NativeArrow.store:
            raise Incompatible(
                f"it reads CSR, and X is {dataset.x_format} here (a.X = scipy.sparse.csr_matrix(a.X) converts)"
            )
        return cls(dataset, path, condition, rows)

    def __init__(self, dataset: Dataset, path: Path, condition: Condition, rows: bool) -> None:
        knobs = self.knobs | dict(condition.knobs)
        self.condition, self.rows = condition, rows
        self.fetch_rows = condition.batch_size * knobs["fetch_factor"]
        self.matrix = Matrix(self.parts(dataset, path), available_cores())
        self.blocks = knobs["block_size"]
        if knobs["aligned"] and condition.order == "random":
            self.blocks = self.matrix.aligned_blocks(self.blocks)
        self.empty = cache(lambda rows: csr_matrix((rows, dataset.n_genes), dtype=np.float32))
        self.dense = DenseBatches(dataset.n_genes)

    def ids(self, rows: np.ndarray) -> np.ndarray:
        """The row ids of places in the store."""
        return rows

    def epoch(self, index: int) -> Iterator[Batch]:
        if self.condition.order == "stream":
            order = Streamed(len(self.matrix), self.fetch_rows)
        else:
            order = BlockShuffled(len(self.matrix), self.fetch_rows, self.blocks, self.condition.seed, index)
        size = self.condition.batch_size
        for rows, buffer in read_ahead(self.matrix, fetches(order)):
            ids = self.ids(rows) if self.rows else None
            for start in range(0, len(rows), size):
                stop = min(start + size, len(rows))
                yield Batch(self._cut(buffer, start, stop), None if ids is None else ids[start:stop])

    def _cut(self, buffer: Rows, start: int, stop: int) -> csr_matrix | np.ndarray:
        """Rows start to stop of the buffer: a CSR view into it, or a dense array."""
        batch = buffer.cut(start, stop)
        if self.condition.output == "dense":
            return self.dense.make(batch)
        x = copy(self.empty(stop - start))  # a tenth of what scipy's constructor takes to see that the arrays fit
        x.data, x.indices, x.indptr = batch
        return x

    def close(self) -> None:
        self.matrix.close()


class NativeZarr(Native):
    """The same over annbatch's zarr, written in the order of the files."""

    name = "native_zarr"
    imports = AnnBatchUnshuffled.imports
    store = AnnBatchUnshuffled.store
    prepare = AnnBatchUnshuffled.prepare

    @classmethod
    def parts(cls, dataset: Dataset, path: Path) -> list[Part]:
        return [zarr.open_part(group) for group in _groups(path)]


class NativeZarrShuffled(NativeZarr):
    """The same over annbatch's pre-shuffled zarr. Its stream is the order of the store, not of the files."""

    name = "native_zarr_shuffled"
    store = AnnBatch.store
    prepare = AnnBatch.prepare

    def __init__(self, dataset: Dataset, path: Path, condition: Condition, rows: bool) -> None:
        super().__init__(dataset, path, condition, rows)
        if rows:
            self.stored = np.concatenate([zarr.obs_column(group, "row") for group in _groups(path)])

    def ids(self, rows: np.ndarray) -> np.ndarray:
        return self.stored[rows]


class NativeArrow(Native):
    """The same over the Arrow files of Hugging Face datasets."""

    name = "native_arrow"
    imports = ("datasets",)
    store = HuggingFace.store
    prepare = HuggingFace.prepare

    @classmethod
    def parts(cls, dataset: Dataset, path: Path) -> list[Part]:
        return arrow.open_parts(path)


class NativeBioNeMo(Native):
    """The same over BioNeMo-SCDL's memory-mapped arrays."""

    name = "native_bionemo"
    imports = ("bionemo.scdl",)
    store = BioNeMo.store
    prepare = BioNeMo.prepare

    @classmethod
    def parts(cls, dataset: Dataset, path: Path) -> list[Part]:
        return [scdl.open_part(path / WHOLE)]


def _groups(path: Path) -> list[Path]:
    return sorted((path / COLLECTION).glob("dataset_*"), key=natural)
