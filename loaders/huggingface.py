"""Adapter of Hugging Face datasets. Its Arrow store has a list of gene indices and a list of values for each cell."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix

from harness.condition import Condition
from harness.data.dataset import Dataset
from loaders.convert import csr, to_output
from loaders.protocol import Batch, Incompatible
from loaders.slabs import csr_slabs

SLAB = 2_048  # cells
OWN_LAST_BATCH = "each worker process ends its own shards with a batch that is not full"


class HuggingFace:
    """torch's DataLoader, which requests whole minibatches from the library's map-style data set (random access).

    If `iterable_buffer`, a number of cells, is not 0, the order "random" is read from the iterable data set instead,
    which shuffles its `num_shards` shards, and the cells within a buffer of this size. Both data sets return Arrow
    tables, because their conversion to arrays cell by cell takes several times as long.
    """

    name = "huggingface"
    imports = ("datasets", "pyarrow.compute", "torch")
    store = "arrow/1"
    knobs = {"iterable_buffer": 0, "num_shards": 64, "prefetch_factor": 2}

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
        # The library can save only a table in memory. So it saves an empty one, whose Arrow file is then replaced.
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

        knobs = self.knobs | dict(condition.knobs)
        buffer = knobs["iterable_buffer"]
        if buffer and condition.order == "stream":
            raise Incompatible("a shuffle buffer is only for the order random")
        columns = ["genes", "expressions", *(["row"] if rows else [])]
        cells = datasets.load_from_disk(path).select_columns(columns).with_format("arrow")
        size = condition.batch_size
        self.generator, self.condition, self.iterable = torch.Generator(), condition, bool(buffer)
        self.fetch_rows = max(size, buffer // 2)  # a full buffer delivers half of its cells at once
        sampler = None
        if buffer:
            shards = min(max(knobs["num_shards"], condition.workers), len(cells))
            cells = cells.to_iterable_dataset(shards).shuffle(seed=condition.seed, buffer_size=buffer).batch(size)
        elif condition.order == "random":
            permutation = torch.utils.data.RandomSampler(cells, generator=self.generator)
            sampler = torch.utils.data.BatchSampler(permutation, size, drop_last=False)
        else:
            sampler = _Ranges(len(cells), size)
        self.loader = torch.utils.data.DataLoader(
            cells,
            sampler=sampler,
            batch_size=None,  # the data set itself returns minibatches
            generator=self.generator,
            num_workers=condition.workers,
            prefetch_factor=knobs["prefetch_factor"] if condition.workers else None,
            collate_fn=partial(minibatch, dataset.n_genes, self.iterable),
        )

    def epoch(self, index: int) -> Iterator[Batch]:
        self.generator.manual_seed(int(np.random.SeedSequence([self.condition.seed, index]).generate_state(1)[0]))
        if self.iterable:
            self.loader.dataset.set_epoch(index)
        for x, ids in self.loader:
            # Not in a worker: a dense minibatch takes longer to transfer between processes than to make.
            yield Batch(to_output(x, self.condition.output), ids)

    def close(self) -> None:
        del self.loader


class _Ranges:
    """A sampler that yields one range of row ids for each minibatch, in the order of the store.

    The library reads a range as one slice.
    """

    def __init__(self, n: int, size: int) -> None:
        self.n, self.size = n, size

    def __iter__(self) -> Iterator[range]:
        return (range(start, min(start + self.size, self.n)) for start in range(0, self.n, self.size))


def minibatch(n_genes: int, one_row: bool, table) -> tuple[csr_matrix, np.ndarray | None]:
    """(CSR matrix, row ids) of a minibatch; the row ids are None if the table has no column "row".

    table: a pyarrow table with one row per cell. With `one_row` (the iterable data set): a table with a single row,
    whose entries are lists with one element per cell.
    """
    import pyarrow.compute as pc

    cells = {name: pc.list_flatten(table[name]) if one_row else table[name] for name in table.column_names}
    x = csr_of_table(n_genes, cells, in_file=not one_row)
    return x, cells["row"].to_numpy().copy() if "row" in cells else None


def csr_of_table(n_genes: int, cells, in_file: bool) -> csr_matrix:
    """The CSR matrix of a table, or dict, of the columns "genes" and "expressions", with one row per cell.

    in_file: whether the columns are slices of the file, so that the matrix needs a copy. pyarrow makes one if there are
    several slices, as there are for random access.
    """
    import pyarrow.compute as pc

    flat = [pc.list_flatten(cells[name]) for name in ("expressions", "genes")]
    data, indices = (
        values.to_numpy().copy() if in_file and values.num_chunks == 1 else values.to_numpy() for values in flat
    )
    indptr = np.zeros(len(cells["genes"]) + 1, np.int32)
    np.cumsum(pc.list_value_length(cells["genes"]), out=indptr[1:])
    return csr(data, indices, indptr, n_genes)
