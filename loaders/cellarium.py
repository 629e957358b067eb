"""Adapter of Cellarium's distributed AnnData, which caches whole h5ad shards.

It shuffles the shards, and the cells within each shard.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from scipy.sparse import csr_matrix, issparse

from harness.condition import Condition
from harness.data.dataset import Dataset
from loaders.convert import csr, to_output
from loaders.protocol import Batch
from loaders.slabs import csr_slabs

SHARD_ROWS = 10_000  # cells per shard, as in the library's own examples
SLAB_ROWS = 50_000


class Cellarium:
    """An epoch does not mix the cells of different shards. So the library requires that shards are written shuffled,
    and here they are. The order "stream" is that of the store.

    All shards but the last have SHARD_ROWS cells. If there are several shards, the last one has 0.5 to 1.5 times as
    many, so that no batch of up to half of SHARD_ROWS cells spans more than two shards.
    """

    name = "cellarium"
    imports = ("cellarium.ml", "torch")
    store = "h5ad-shards/2"
    knobs = {"max_cache_size": 2, "iteration_strategy": "cache_efficient", "prefetch_factor": 2}

    @classmethod
    def broken(cls, condition: Condition) -> dict[str, str]:
        return {}

    @classmethod
    def prepare(cls, dataset: Dataset, path: Path, progress: Callable[[int], None]) -> None:
        """Deals the cells of each slab out to the shards' files, then permutes and writes shard after shard.

        Memory: the ids of all cells, a slab and a shard. Disk: all cells once more, uncompressed.
        """
        order = np.random.default_rng(0).permutation(dataset.n_cells)
        stops = np.cumsum(_shard_sizes(dataset.n_cells))
        place = np.empty(dataset.n_cells, np.int64)
        place[order] = np.arange(dataset.n_cells)
        shard_of = np.searchsorted(stops, place, side="right")
        with TemporaryDirectory(dir=path) as folder:
            for first, slab in csr_slabs(dataset, SLAB_ROWS):
                x = csr(*slab, dataset.n_genes)
                ids = np.arange(first, first + x.shape[0])
                for shard in np.unique(shard_of[ids]).tolist():
                    dealt = ids[shard_of[ids] == shard]
                    cells = x[dealt - first]
                    parts = {"ids": dealt, "counts": np.diff(cells.indptr).astype(np.int64)}
                    for name, values in (parts | {"data": cells.data, "indices": cells.indices}).items():
                        with (Path(folder) / f"{shard}-{name}").open("ab") as file:
                            values.tofile(file)
            for shard, stop in enumerate(stops.tolist()):
                _write(Path(folder), shard, place, dataset.n_genes, path / f"{shard:06d}.h5ad")
                progress(stop)

    @classmethod
    def open(cls, dataset: Dataset, path: Path, condition: Condition, *, rows: bool) -> "Cellarium":
        return cls(dataset, path, condition, cls.knobs | dict(condition.knobs), rows)

    def __init__(
        self, dataset: Dataset, path: Path, condition: Condition, knobs: dict[str, int | str], rows: bool
    ) -> None:
        from cellarium.ml.data import DistributedAnnDataCollection, IterableDistributedAnnDataCollectionDataset
        from cellarium.ml.utilities.data import AnnDataField, collate_fn, densify
        from torch.utils.data import DataLoader

        self.condition, self.rows, self.fetch_rows = condition, rows, SHARD_ROWS
        keys = {"x": AnnDataField(attr="X", convert_fn=_plain if condition.output == "csr" else densify)}
        if rows:
            keys["row"] = AnnDataField(attr="obs", key="row")
        self.dataset = IterableDistributedAnnDataCollectionDataset(
            DistributedAnnDataCollection(
                [str(file) for file in sorted(path.glob("*.h5ad"))],
                shard_size=SHARD_ROWS,
                last_shard_size=_shard_sizes(dataset.n_cells)[-1],
                max_cache_size=knobs["max_cache_size"],
            ),
            batch_keys=keys,
            batch_size=condition.batch_size,
            iteration_strategy=knobs["iteration_strategy"],
            shuffle=condition.order == "random",
            shuffle_seed=condition.seed,
        )
        self.loader = DataLoader(
            self.dataset,
            num_workers=condition.workers,
            prefetch_factor=knobs["prefetch_factor"] if condition.workers else None,
            collate_fn=collate_fn,
        )

    def epoch(self, index: int) -> Iterator[Batch]:
        self.dataset.set_epoch(index)
        for batch in self.loader:
            x = batch["x"] if issparse(batch["x"]) else batch["x"].numpy()
            yield Batch(to_output(x, self.condition.output), batch["row"].numpy() if self.rows else None)

    def close(self) -> None:
        self.loader = self.dataset = None


def _write(folder: Path, shard: int, place: np.ndarray, n_genes: int, path: Path) -> None:
    """Writes the cells that were dealt out to a shard, in the order of their places, and deletes what was dealt."""
    import anndata as ad
    import pandas as pd

    kinds = {"ids": np.int64, "counts": np.int64, "data": np.float32, "indices": np.int32}
    ids, counts, data, indices = (np.fromfile(folder / f"{shard}-{name}", kind) for name, kind in kinds.items())
    by_place = np.argsort(place[ids])
    x = csr(data, indices, np.concatenate([[0], np.cumsum(counts)]), n_genes)[by_place]
    row = ids[by_place]
    # Gene names may repeat, so numbers replace them.
    genes = pd.DataFrame(index=np.arange(n_genes).astype(str))
    ad.AnnData(x, obs=pd.DataFrame({"row": row}, index=row.astype(str)), var=genes).write_h5ad(path)
    for name in kinds:
        (folder / f"{shard}-{name}").unlink()


def _plain(x: csr_matrix) -> csr_matrix:
    """`x` without the reference to its AnnData that the X of a view has, which a worker process would send too."""
    return csr(x.data, x.indices, x.indptr, x.shape[1])


def _shard_sizes(cells: int) -> list[int]:
    shards = max(1, round(cells / SHARD_ROWS))
    return [SHARD_ROWS] * (shards - 1) + [cells - SHARD_ROWS * (shards - 1)]
