"""Adapter of Hugging Face datasets in its mode for objects: Parquet files that are streamed, and a shuffle buffer."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from harness.condition import Condition
from harness.data.dataset import Dataset
from loaders.convert import to_output
from loaders.huggingface import OWN_LAST_BATCH, HuggingFace, minibatch
from loaders.protocol import Batch

SHARDS = 128  # files at least; an epoch reads `max_buffer_input_shards` of them at a time
SHARD_BYTES, GROUP_BYTES = 500_000_000, 100_000_000
"""Of a file and of its row groups, uncompressed: the library's own sizes when it uploads a data set."""
CELL_BYTES, COUNT_BYTES = 16, 8  # of Arrow: the row id and two offsets of lists; a gene and a value
RANGE_BYTES = 128 << 20


class HuggingFaceStreaming:
    """torch's DataLoader over the library's iterable data set of Parquet files, which is the format that its authors
    advise for streaming, with the prefetching and the longer requests that they advise.

    With the order "random", each epoch shuffles the files, reads `max_buffer_input_shards` of them in turn into a
    buffer of `buffer_size` cells, and delivers half of the full buffer in random order. After each epoch in this order
    the library waits 5 s, so that pyarrow's threads can end.
    """

    name = "huggingface_streaming"
    imports = (
        *("datasets", "datasets.packaged_modules.parquet.parquet", "pyarrow.compute", "pyarrow.dataset"),
        *("pyarrow.parquet", "s3fs", "scipy.io", "torch"),
    )
    store = "parquet/1"
    objects = True
    knobs = {"buffer_size": 10_000, "max_buffer_input_shards": 10, "prefetch_factor": 2}

    @classmethod
    def broken(cls, condition: Condition) -> dict[str, str]:
        return {"batches": OWN_LAST_BATCH} if condition.workers > 1 else {}

    @classmethod
    def prepare(cls, dataset: Dataset, path: Path, progress: Callable[[int], None]) -> None:
        """Writes the Arrow store of `huggingface` into a temporary folder, and from it the Parquet files."""
        import datasets

        n_cells = dataset.n_cells
        with TemporaryDirectory(dir=path) as folder:
            HuggingFace.prepare(dataset, Path(folder), lambda cells: progress(cells // 2))
            cells, shards = datasets.load_from_disk(folder), _shards(dataset)
            for i in range(shards):
                cells.shard(shards, i).to_parquet(path / f"train-{i:05d}-of-{shards:05d}.parquet")
                progress((n_cells + n_cells * (i + 1) // shards) // 2)

    @classmethod
    def open(cls, dataset: Dataset, path: Path, condition: Condition, *, rows: bool) -> "HuggingFaceStreaming":
        return cls(dataset, path, condition, rows)

    def __init__(self, dataset: Dataset, path: Path, condition: Condition, rows: bool) -> None:
        import datasets
        import pyarrow as pa
        import pyarrow.dataset
        from torch.utils.data import DataLoader

        knobs = self.knobs | dict(condition.knobs)
        buffer, inputs = knobs["buffer_size"], knobs["max_buffer_input_shards"]
        folder = dataset.url(path) if dataset.bucket else str(path)
        options = pa.dataset.ParquetFragmentScanOptions(
            cache_options=pa.CacheOptions(prefetch_limit=1, range_size_limit=RANGE_BYTES)
        )
        cells = datasets.load_dataset(
            "parquet",
            data_files=f"{folder}/*.parquet",
            split="train",
            streaming=True,
            columns=["genes", "expressions", *(["row"] if rows else [])],
            fragment_scan_options=options,
        ).with_format("arrow")
        self.condition, self.fetch_rows = condition, _group_rows(dataset)
        if condition.order == "random":
            cells = cells.shuffle(seed=condition.seed, buffer_size=buffer, max_buffer_input_shards=inputs)
            inputs = min(inputs, _shards(dataset))  # whose row groups begin, and end, at about the same time
            self.fetch_rows = max(buffer // 2, inputs * self.fetch_rows)
        self.cells = cells.batch(condition.batch_size)
        self.loader = DataLoader(
            self.cells,
            batch_size=None,  # the data set itself returns minibatches
            num_workers=condition.workers,
            prefetch_factor=knobs["prefetch_factor"] if condition.workers else None,
            collate_fn=partial(minibatch, dataset.n_genes, True),
        )

    def epoch(self, index: int) -> Iterator[Batch]:
        if self.condition.order == "random":  # otherwise it would move the files
            self.cells.set_epoch(index)
        for x, ids in self.loader:
            yield Batch(to_output(x, self.condition.output), ids)

    def close(self) -> None:
        del self.loader, self.cells


def _bytes(dataset: Dataset) -> int:
    return CELL_BYTES * dataset.n_cells + COUNT_BYTES * dataset.nnz


def _shards(dataset: Dataset) -> int:
    return min(max(SHARDS, -(-_bytes(dataset) // SHARD_BYTES)), dataset.n_cells)


def _group_rows(dataset: Dataset) -> int:
    """The number of cells in a row group, which is read as a whole."""
    return max(1, min(dataset.n_cells // _shards(dataset), GROUP_BYTES * dataset.n_cells // _bytes(dataset)))
