"""Adapter of MosaicML's streaming. Its store has a sample for each cell in MDS shards, which are compressed by zstd."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix

from harness.condition import Condition
from harness.data.dataset import Dataset
from loaders import scratch
from loaders.convert import csr, to_output
from loaders.protocol import Batch, Incompatible
from loaders.slabs import csr_slabs

SLAB = 2_048  # cells
SHARD_BYTES = 1 << 26  # uncompressed: the library's default
SHORT_GENES = 2**16


class Mosaic:
    """torch's DataLoader over a StreamingDataset, which downloads shards that are about to be needed into a folder,
    decompresses them there, and reads them from there in all later epochs. Closing removes this folder.

    The store is read in this way from a local disk too: opened in its place, it would be decompressed there. With the
    order "random", cells move by up to half of `shuffle_block_size` cells, whose default is the library's on one
    machine: a smaller set is shuffled as a whole, so that its first minibatches need most of its shards.
    """

    name = "mosaic"
    imports = ("streaming", "boto3.s3.transfer", "torch")
    store = "mds/1"
    objects = True
    keeps_copies = True
    knobs = {"shuffle_algo": "py1e", "shuffle_block_size": 4_000_000, "prefetch_factor": 2}

    @classmethod
    def broken(cls, condition: Condition) -> dict[str, str]:
        return {}

    @classmethod
    def prepare(cls, dataset: Dataset, path: Path, progress: Callable[[int], None]) -> None:
        """Genes and values are columns of bytes, because the library's arrays cannot be empty, as those of a cell may.

        The library's own compression is that of a whole shard.
        """
        from streaming import MDSWriter

        columns = {"row": "int", "genes": "bytes", "values": "bytes"}
        with MDSWriter(out=str(path), columns=columns, compression="zstd", size_limit=SHARD_BYTES) as writer:
            for first, (data, indices, indptr) in csr_slabs(dataset, SLAB):
                genes = indices.astype(_of_genes(dataset))
                for i, (start, stop) in enumerate(pairwise(indptr)):
                    parts = {"genes": genes[start:stop].tobytes(), "values": data[start:stop].tobytes()}
                    writer.write({"row": first + i} | parts)
                progress(first + len(indptr) - 1)

    @classmethod
    def open(cls, dataset: Dataset, path: Path, condition: Condition, *, rows: bool) -> "Mosaic":
        if condition.processes > 1:
            raise Incompatible("processes that no launcher of torch has started may choose the same shared memory")
        return cls(dataset, path, condition, rows)

    def __init__(self, dataset: Dataset, path: Path, condition: Condition, rows: bool) -> None:
        from streaming import StreamingDataset
        from torch.utils.data import DataLoader

        knobs = self.knobs | dict(condition.knobs)
        self.condition, self.rows, self.folder = condition, rows, scratch.folder(path)
        self.dataset = StreamingDataset(
            remote=dataset.url(path) if dataset.bucket else str(path),
            local=self.folder.name,
            batch_size=condition.batch_size,
            shuffle=condition.order == "random",
            shuffle_seed=condition.seed,
            shuffle_algo=knobs["shuffle_algo"],
            shuffle_block_size=knobs["shuffle_block_size"],
        )
        # A shard is downloaded as a whole.
        self.fetch_rows = max(condition.batch_size, int(self.dataset.samples_per_shard.mean()))
        self.loader = DataLoader(
            self.dataset,
            batch_size=condition.batch_size,
            num_workers=condition.workers,
            prefetch_factor=knobs["prefetch_factor"] if condition.workers else None,
            collate_fn=partial(_batch, dataset.n_genes, _of_genes(dataset)),
        )

    def epoch(self, index: int) -> Iterator[Batch]:
        self.dataset.next_epoch = index
        for x, ids in self.loader:
            yield Batch(to_output(x, self.condition.output), ids if self.rows else None)

    def close(self) -> None:
        """Ends the threads of an epoch that was not read to its end, and removes the copy and the files of locks.

        None of this has a public way. The library removes its shared memory when the process ends.
        """
        if iterator := getattr(self.dataset, "_iterator", None):
            iterator.exit()
        for lock in (self.dataset._cache_filelock_path, self.dataset._shared_barrier.filelock_path):
            Path(lock).unlink(missing_ok=True)
        self.loader = self.dataset = None
        self.folder.cleanup()


def _of_genes(dataset: Dataset) -> type:
    return np.uint16 if dataset.n_genes <= SHORT_GENES else np.int32


def _batch(n_genes: int, of_genes: type, cells: list[dict]) -> tuple[csr_matrix, np.ndarray]:
    """(CSR matrix, row ids) of a minibatch of samples."""
    values, genes = (bytearray().join([cell[name] for cell in cells]) for name in ("values", "genes"))
    indptr = np.zeros(len(cells) + 1, np.int32)
    np.cumsum([len(cell["values"]) // 4 for cell in cells], out=indptr[1:])
    indices = np.frombuffer(genes, of_genes).astype(np.int32, copy=False)
    ids = np.array([cell["row"] for cell in cells], np.int64)
    return csr(np.frombuffer(values, np.float32), indices, indptr, n_genes), ids
