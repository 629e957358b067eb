"""Adapters of our loader, loadstone, for the h5ad files and for the stores of other loaders."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import ClassVar

import numpy as np

from harness.condition import Condition
from harness.data.dataset import Dataset
from harness.data.inspect import natural
from loaders.annbatch import COLLECTION, AnnBatch, AnnBatchUnshuffled
from loaders.bionemo import WHOLE, BioNeMo
from loaders.cellstream import STORE, CellStream
from loaders.convert import OF_NUMBA
from loaders.decoding import of_store
from loaders.huggingface import HuggingFace
from loaders.protocol import UNCONVERTED, Batch, Incompatible
from loaders.tokens import encoding
from loadstone import BlockLoader, BlockShuffling, Streaming, open_csad, open_h5ad, open_zarr
from loadstone.formats import arrow, scdl, zarr_group
from loadstone.loader import Source
from loadstone.reading.files import Files
from loadstone.reading.matrix import Matrix, Part, open_matrix
from loadstone.tokens import Tokenized

OURS = ("loadstone", *OF_NUMBA)


class Native:
    """loadstone over the h5ad files. It reads `batch_size * fetch_factor` rows at a time.

    With the order "random", these rows are blocks of up to `block_size` consecutive rows. If `aligned` is true, blocks
    begin and end at the edges of storage chunks where possible, so that some blocks are shorter than `block_size`.
    """

    name = "native"
    imports = OURS
    store = UNCONVERTED
    objects = True
    tokenises = True
    knobs = {"block_size": 16, "fetch_factor": 256, "aligned": True}

    @classmethod
    def broken(cls, condition: Condition) -> dict[str, str]:
        return {}

    @classmethod
    def source(cls, dataset: Dataset, path: Path, output: str) -> Source:
        return open_h5ad(dataset.urls if dataset.bucket else dataset.paths, output=output)

    @classmethod
    def opening(cls, path: Path, output: str) -> str:
        """The call that opens the source, as Python code. path: the folder of the store."""
        return f"open_h5ad(paths, output={output!r})"

    @classmethod
    def open(cls, dataset: Dataset, path: Path, condition: Condition, *, rows: bool) -> "Native":
        if condition.workers:
            raise Incompatible("it reads with threads inside one process; set cores instead of workers")
        return cls(dataset, path, condition, rows)

    def __init__(self, dataset: Dataset, path: Path, condition: Condition, rows: bool) -> None:
        knobs = self.knobs | dict(condition.knobs)
        blocks = BlockShuffling(knobs["block_size"], knobs["aligned"])
        self.rows = rows
        if condition.output == "tokens":
            source: Source = Tokenized(self.source(dataset, path, "csr"), encoding(condition, dataset.n_genes))
        else:
            source = self.source(dataset, path, condition.output)
        self.loader = BlockLoader(
            source,
            sampler=Streaming() if condition.order == "stream" else blocks,
            batch_size=condition.batch_size,
            fetch_factor=knobs["fetch_factor"],
            seed=condition.seed,
        )
        self.fetch_rows = self.loader.fetch_rows

    @classmethod
    def code(cls, dataset: Dataset, path: Path, condition: Condition) -> str:
        """See `Loader.code`."""
        knobs = cls.knobs | dict(condition.knobs)
        labels = f"{{name: obs_codes(paths, name).codes for name in {list(dataset.label_names)}}}"
        sampler = "Streaming()"
        if condition.order != "stream":
            sampler = f"BlockShuffling({knobs['block_size']}, aligned={knobs['aligned']})"
        opening = cls.opening(path, "csr" if condition.tokens else condition.output)
        imports = f"from loadstone import BlockLoader, BlockShuffling, Streaming, obs_codes, {opening.split('(')[0]}"
        if condition.tokens:
            kind = type(encoding(condition, dataset.n_genes)).__name__
            imports += f"\nfrom loadstone.tokens import {kind}, Tokenized, vocabulary"
            opening = f"Tokenized({opening}, {kind}(vocabulary=vocabulary({dataset.n_genes})))"
        return f"""{imports}

paths = {[str(path) for path in dataset.paths]}
labels = {labels if dataset.label_names else "{}"}
loader = BlockLoader(
    {opening},
    sampler={sampler},
    batch_size={condition.batch_size},
    fetch_factor={knobs["fetch_factor"]},
    labels=labels,
)
for epoch in range(10):
    for batch in loader:
        batch.x, batch.rows, batch.labels  # (cells, genes), the ids of the cells, and the codes of their labels
"""

    @classmethod
    def ceiling(cls, dataset: Dataset, path: Path, seconds: float) -> dict[str, object]:
        """See `Loader.ceiling`."""
        source = cls.source(dataset, path, "csr")
        try:
            if not isinstance(source, Matrix):
                raise Incompatible("its ceiling is measured for CSR only, and X is dense")
            return of_store(source, seconds)
        finally:
            source.close()

    def ids(self, rows: np.ndarray) -> np.ndarray:
        """The row ids of the cells at the positions `rows` in the store; both are int64."""
        return rows

    def epoch(self, index: int) -> Iterator[Batch]:
        for batch in self.loader.epoch(index):
            yield Batch(batch.x, self.ids(batch.rows) if self.rows else None)

    def close(self) -> None:
        self.loader.close()


class NativeOver(Native):
    """Base class for loadstone over a converted store that holds X as one or several CSR matrices.

    parts: the function that opens these matrices, called with the folder of the store and a `Files`.
    """

    parts: ClassVar[Callable[[Path, Files], list[Part]]]
    objects = False
    code = None  # these stores have no opener in the public API

    @classmethod
    def source(cls, dataset: Dataset, path: Path, output: str) -> Source:
        return open_matrix(partial(cls.parts, path), dataset.n_genes, output=output)


class NativeZarr(Native):
    """loadstone over annbatch's zarr store in the order of the files."""

    name = "native_zarr"
    imports = (*AnnBatchUnshuffled.imports, *OURS)
    store = AnnBatchUnshuffled.store
    prepare = AnnBatchUnshuffled.prepare
    objects = True
    code = None

    @classmethod
    def source(cls, dataset: Dataset, path: Path, output: str) -> Source:
        groups = _groups(path)
        return open_zarr([dataset.url(group) for group in groups] if dataset.bucket else groups, output=output)

    @classmethod
    def open(cls, dataset: Dataset, path: Path, condition: Condition, *, rows: bool) -> Native:
        if dataset.x_format != "csr":
            raise Incompatible("it reads CSR, and the store of a dense X is dense")
        return super().open(dataset, path, condition, rows=rows)


class NativeZarrShuffled(NativeZarr):
    """loadstone over annbatch's pre-shuffled zarr store. The order "stream" is the order of the store."""

    name = "native_zarr_shuffled"
    store = AnnBatch.store
    prepare = AnnBatch.prepare

    def __init__(self, dataset: Dataset, path: Path, condition: Condition, rows: bool) -> None:
        super().__init__(dataset, path, condition, rows)
        if rows:
            self.row_ids = np.concatenate([zarr_group.obs_column(group, "row") for group in _groups(path)])

    def ids(self, rows: np.ndarray) -> np.ndarray:
        return self.row_ids[rows]


class NativeArrow(NativeOver):
    """loadstone over the Arrow files of Hugging Face datasets."""

    name = "native_arrow"
    imports = ("datasets", "pyarrow", *OURS)
    store = HuggingFace.store
    prepare = HuggingFace.prepare
    parts = staticmethod(arrow.open_parts)


class NativeBioNeMo(NativeOver):
    """loadstone over BioNeMo-SCDL's memory-mapped arrays."""

    name = "native_bionemo"
    imports = ("bionemo.scdl", "bionemo.scdl.schema.header", "pyarrow.parquet", "pandas", *OURS)
    store = BioNeMo.store
    prepare = BioNeMo.prepare
    parts = staticmethod(lambda path, opened: scdl.open_parts(path / WHOLE, opened))


def _groups(path: Path) -> list[Path]:
    return sorted((path / COLLECTION).glob("dataset_*"), key=natural)


class NativeCellStream(Native):
    """loadstone over cellstream's archive. The default is single cells at random, since each is compressed alone."""

    name = "native_cellstream"
    imports = (*CellStream.imports, *OURS)
    store = CellStream.store
    prepare = CellStream.prepare
    knobs = Native.knobs | {"block_size": 1}

    @classmethod
    def source(cls, dataset: Dataset, path: Path, output: str) -> Source:
        return open_csad(dataset.url(path / STORE) if dataset.bucket else path / STORE, output=output)

    @classmethod
    def opening(cls, path: Path, output: str) -> str:
        return f"open_csad({str(path / STORE)!r}, output={output!r})"
