"""Adapter of scDataset (block sampling with batched fetching) over an AnnCollection of backed files."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from harness.condition import Condition
from harness.data.dataset import Dataset
from loaders.convert import to_output
from loaders.protocol import UNCONVERTED, Batch

SAME_EPOCH = (
    "with worker processes scDataset 0.3 counts epochs in the workers' copies, which end with the epoch: "
    "every epoch repeats the first one's order"
)


class ScDataset:
    """With CSR output, X passes through scDataset's callbacks as a sparse matrix. With dense output, `densify` decides
    when X is converted: "fetch" converts each fetch with scDataset's adata_to_mindex, "batch" converts each minibatch
    in scDataset's batch_transform.

    The default block size and fetch factor are those that scDataset's poster recommends. The default of `densify` is
    the conversion in the authors' benchmarks.
    """

    name = "scdataset"
    imports = ("scdataset", "torch")
    store = UNCONVERTED
    knobs = {"block_size": 16, "fetch_factor": 256, "densify": "fetch"}

    @classmethod
    def broken(cls, condition: Condition) -> dict[str, str]:
        return {"reshuffled": SAME_EPOCH} if condition.workers and condition.order == "random" else {}

    @classmethod
    def open(cls, dataset: Dataset, path: Path, condition: Condition, *, rows: bool) -> "ScDataset":
        return cls(dataset, condition, rows)

    @classmethod
    def code(cls, dataset: Dataset, path: Path, condition: Condition) -> str:
        """See `Loader.code`."""
        knobs = cls.knobs | dict(condition.knobs)
        strategy = "Streaming()" if condition.order == "stream" else f"BlockShuffling(block_size={knobs['block_size']})"
        convert = "adata.X.toarray()" if condition.output == "dense" else "adata.X"
        return f"""import anndata as ad
from anndata.experimental import AnnCollection
from scdataset import BlockShuffling, Streaming, scDataset
from torch.utils.data import DataLoader

paths = {[str(path) for path in dataset.paths]}
collection = AnnCollection([ad.read_h5ad(path, backed="r") for path in paths])
dataset = scDataset(
    collection,
    {strategy},
    batch_size={condition.batch_size},
    fetch_factor={knobs["fetch_factor"]},
    fetch_transform=lambda view: view.to_adata(),
    batch_transform=lambda adata: ({convert}, adata.obs[{list(dataset.label_names)}]),
)
for epoch in range(10):
    for x, obs in DataLoader(dataset, batch_size=None, num_workers={condition.workers}):
        x, obs  # (cells, genes), and their labels
"""

    def __init__(self, dataset: Dataset, condition: Condition, rows: bool) -> None:
        import anndata as ad
        from anndata.experimental import AnnCollection
        from scdataset import BlockShuffling, Streaming, scDataset
        from torch.utils.data import DataLoader

        knobs = self.knobs | dict(condition.knobs)
        fetch_factor = knobs["fetch_factor"]
        self.files = [ad.read_h5ad(path, backed="r") for path in dataset.paths]
        collection = AnnCollection(self.files, join_obs=None)
        stream = condition.order == "stream"
        dense = condition.output == "dense"
        self.fetch_rows = condition.batch_size * fetch_factor
        library = scDataset(
            collection,
            Streaming() if stream else BlockShuffling(block_size=knobs["block_size"]),
            batch_size=condition.batch_size,
            fetch_factor=fetch_factor,
            fetch_callback=_fetch_dense if dense and knobs["densify"] == "fetch" else _fetch,
            batch_callback=_batch,
            batch_transform=partial(_convert, condition.output),
            seed=condition.seed,
        )
        self.rows = rows
        self.loader = library
        if condition.workers:
            self.loader = DataLoader(
                library, batch_size=None, num_workers=condition.workers, prefetch_factor=fetch_factor + 1
            )

    def epoch(self, index: int) -> Iterator[Batch]:
        for x, ids in self.loader:
            yield Batch(x, np.asarray(ids) if self.rows else None)

    def close(self) -> None:
        for file in self.files:
            file.file.close()


def _fetch(collection, ids):
    return collection[ids].X, ids


def _fetch_dense(collection, ids):
    from scdataset.transforms import adata_to_mindex

    return adata_to_mindex(collection[ids])["X"], ids


def _batch(fetched, positions):
    x, ids = fetched
    return x[positions], ids[positions]


def _convert(output, batch):
    x, ids = batch
    return to_output(x, output), ids
