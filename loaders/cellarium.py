"""Adapter of Cellarium's distributed AnnData, which caches whole h5ad shards.

It shuffles the shards, and the cells within each shard.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix, issparse, vstack

from harness.condition import Condition
from harness.data.dataset import Dataset
from loaders.convert import to_output
from loaders.protocol import Batch
from loaders.slabs import csr_slabs

SHARD_ROWS = 10_000  # cells per shard, as in the library's own examples


class Cellarium:
    """The shards hold the cells in the order of the files. The library delivers one shard after another.

    All shards but the last have SHARD_ROWS cells. If there are several shards, the last one has 0.5 to 1.5 times as
    many, so that no batch of up to half of SHARD_ROWS cells spans more than two shards.
    """

    name = "cellarium"
    imports = ("cellarium.ml", "torch")
    store = "h5ad-shards/1"
    knobs = {"max_cache_size": 2}

    @classmethod
    def broken(cls, condition: Condition) -> dict[str, str]:
        return {}

    @classmethod
    def prepare(cls, dataset: Dataset, path: Path, progress: Callable[[int], None]) -> None:
        import anndata as ad
        import pandas as pd

        # Gene names may repeat, so numbers replace them.
        genes = pd.DataFrame(index=np.arange(dataset.n_genes).astype(str))
        sizes = _shard_sizes(dataset.n_cells)
        pending, done = csr_matrix((0, dataset.n_genes), dtype=np.float32), 0
        for _, slab in csr_slabs(dataset, SHARD_ROWS):
            shape = (len(slab.indptr) - 1, dataset.n_genes)
            pending = vstack([pending, csr_matrix((slab.data, slab.indices, slab.indptr), shape=shape)], format="csr")
            while sizes and pending.shape[0] >= sizes[0]:
                size = sizes.pop(0)
                row = np.arange(done, done + size)
                shard = ad.AnnData(pending[:size], obs=pd.DataFrame({"row": row}, index=row.astype(str)), var=genes)
                shard.write_h5ad(path / f"{done // SHARD_ROWS:06d}.h5ad")
                pending, done = pending[size:], done + size
                progress(done)

    @classmethod
    def open(cls, dataset: Dataset, path: Path, condition: Condition, *, rows: bool) -> "Cellarium":
        return cls(dataset, path, condition, cls.knobs | dict(condition.knobs), rows)

    def __init__(self, dataset: Dataset, path: Path, condition: Condition, knobs: dict[str, int], rows: bool) -> None:
        from cellarium.ml.data import DistributedAnnDataCollection, IterableDistributedAnnDataCollectionDataset
        from cellarium.ml.utilities.data import AnnDataField, collate_fn, densify
        from torch.utils.data import DataLoader

        self.condition, self.rows, self.fetch_rows = condition, rows, SHARD_ROWS
        keys = {"x": AnnDataField(attr="X", convert_fn=csr_matrix if condition.output == "csr" else densify)}
        if rows:
            keys["row"] = AnnDataField(attr="obs", key="row")
        self.dataset = IterableDistributedAnnDataCollectionDataset(
            DistributedAnnDataCollection(
                [str(file) for file in sorted(path.glob("*.h5ad"))],
                shard_size=SHARD_ROWS,
                last_shard_size=_shard_sizes(dataset.n_cells)[-1],
                **knobs,
            ),
            batch_keys=keys,
            batch_size=condition.batch_size,
            shuffle=condition.order == "random",
            shuffle_seed=condition.seed,
        )
        self.loader = DataLoader(self.dataset, num_workers=condition.workers, collate_fn=collate_fn)

    def epoch(self, index: int) -> Iterator[Batch]:
        self.dataset.set_epoch(index)
        for batch in self.loader:
            x = batch["x"] if issparse(batch["x"]) else batch["x"].numpy()
            yield Batch(to_output(x, self.condition.output), batch["row"].numpy() if self.rows else None)

    def close(self) -> None:
        self.loader = self.dataset = None


def _shard_sizes(cells: int) -> list[int]:
    shards = max(1, round(cells / SHARD_ROWS))
    return [SHARD_ROWS] * (shards - 1) + [cells - SHARD_ROWS * (shards - 1)]
