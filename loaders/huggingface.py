"""Hugging Face datasets over an Arrow store: a list of genes and a list of expressions a cell."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix

from harness.condition import Condition
from harness.dataset import Dataset
from loaders.convert import to_output
from loaders.protocol import Batch, Incompatible
from loaders.slabs import csr_slabs

SLAB = 2_048  # cells
SHARDS = 64  # what the library's own examples cut an iterable data set into

OWN_LAST_BATCH = "each worker process ends its own shards with a batch that is not full"


class HuggingFace:
    """torch's DataLoader over the map-style data set in numpy format: exact random access, a cell at a time.

    `iterable_buffer` (cells) reads the order "random" from the iterable data set instead: its shards shuffled, and
    the cells within a buffer.
    """

    name = "huggingface"
    imports = ("datasets", "torch")
    store = "arrow/1"
    knobs = {"iterable_buffer": 0}

    @classmethod
    def broken(cls, condition: Condition) -> dict[str, str]:
        approximate = (cls.knobs | dict(condition.knobs))["iterable_buffer"]
        return {"batches": OWN_LAST_BATCH} if approximate and condition.workers > 1 else {}

    @classmethod
    def prepare(cls, dataset: Dataset, path: Path, progress: Callable[[int], None]) -> None:
        import datasets
        import pyarrow as pa

        genes, expressions, row = (datasets.Value(dtype) for dtype in ("int32", "float32", "int64"))
        columns = {"genes": datasets.List(genes), "expressions": datasets.List(expressions), "row": row}
        features = datasets.Features(columns)
        datasets.disable_progress_bars()
        # The library saves what it holds as a table. It saves an empty one, whose Arrow file is then written anew.
        datasets.Dataset.from_dict({name: [] for name in columns}, features).save_to_disk(path, num_shards=1)
        (file,) = path.glob("*.arrow")
        schema = features.arrow_schema
        with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
            for first, (data, indices, indptr) in csr_slabs(dataset, SLAB):
                done = first + len(indptr) - 1
                lists = [pa.ListArray.from_arrays(indptr.astype(np.int32), values) for values in (indices, data)]
                writer.write_batch(pa.record_batch([*lists, np.arange(first, done)], schema))
                progress(done)

    @classmethod
    def open(cls, dataset: Dataset, path: Path, condition: Condition, *, rows: bool) -> "HuggingFace":
        return cls(dataset, path, condition, rows)

    def __init__(self, dataset: Dataset, path: Path, condition: Condition, rows: bool) -> None:
        import datasets
        import torch

        buffer = (self.knobs | dict(condition.knobs))["iterable_buffer"]
        if buffer and condition.order == "stream":
            raise Incompatible("a shuffle buffer is for the order random")
        columns = ["genes", "expressions", *(["row"] if rows else [])]
        cells = datasets.load_from_disk(path).select_columns(columns)
        self.generator, self.condition, self.iterable = torch.Generator(), condition, None
        self.fetch_rows = max(condition.batch_size, buffer // 2)  # of a full buffer half is handed on
        if buffer:
            shards = min(max(SHARDS, condition.workers), len(cells))
            cells = cells.to_iterable_dataset(shards).shuffle(seed=condition.seed, buffer_size=buffer)
            self.iterable = cells
        self.loader = torch.utils.data.DataLoader(
            cells.with_format("numpy"),
            batch_size=condition.batch_size,
            shuffle=condition.order == "random" and not buffer,
            generator=self.generator,
            num_workers=condition.workers,
            collate_fn=partial(_collate, dataset.n_genes, condition.output),
        )

    def epoch(self, index: int) -> Iterator[Batch]:
        self.generator.manual_seed(int(np.random.SeedSequence([self.condition.seed, index]).generate_state(1)[0]))
        if self.iterable is not None:
            self.loader.dataset.set_epoch(index)
        for x, ids in self.loader:
            yield Batch(x, ids)

    def close(self) -> None:
        del self.loader


def _collate(n_genes: int, output: str, cells: list[dict]) -> tuple:
    indptr = np.cumsum([0, *(len(cell["genes"]) for cell in cells)])
    genes = np.concatenate([cell["genes"] for cell in cells])
    expressions = np.concatenate([cell["expressions"] for cell in cells])
    x = csr_matrix((expressions, genes, indptr), shape=(len(cells), n_genes))
    ids = np.array([cell["row"] for cell in cells]) if "row" in cells[0] else None
    return to_output(x, output), ids
