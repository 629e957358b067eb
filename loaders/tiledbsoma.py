"""Adapter of TileDB-SOMA's PyTorch data set.

With the order "random", it reads random chunks of `shuffle_chunk_size` cells into a buffer of `io_batch_size` cells,
and shuffles the buffer.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from harness.condition import Condition
from harness.data.dataset import Dataset
from loaders.convert import OF_NUMBA, to_output
from loaders.protocol import Batch, Incompatible
from loaders.slabs import csr_slabs

MEASUREMENT, LAYER = "RNA", "data"
_ZSTD = {"_type": "ZstdFilter", "level": 9}
_SHUFFLED = ["ByteShuffleFilter", _ZSTD]
CENSUS = {
    "capacity": 2**16,
    "dims": {"soma_dim_0": {"tile": 2048, "filters": [_ZSTD]}, "soma_dim_1": {"tile": 2048, "filters": _SHUFFLED}},
    "attrs": {"soma_data": {"filters": _SHUFFLED}},
    **{"cell_order": "row-major", "tile_order": "row-major", "allows_duplicates": True},
}
"""The options with which the builder of the CELLxGENE Census, the largest store of this format, creates its raw X."""
SLAB_ROWS = 50_000  # cells per fragment; the library's own converter writes up to 100 million counts per fragment


class TileDBSOMA:
    """X has the schema of the CELLxGENE Census. A cell's soma_joinid is its row id. obs and var hold ids."""

    name = "tiledbsoma"
    imports = ("tiledbsoma_ml", "tiledbsoma", "torch", *OF_NUMBA)
    store = "soma/2"
    objects = True
    knobs = {"io_batch_size": 65536, "shuffle_chunk_size": 64, "use_eager_fetch": True}

    @classmethod
    def broken(cls, condition: Condition) -> dict[str, str]:
        reasons = {}
        if condition.order == "random":
            reasons["reshuffled"] = "its set_epoch has no effect: every epoch repeats the first one's order"
        if condition.workers > 1:
            reasons["batches"] = "each of its workers ends with a short one"
        return reasons

    @classmethod
    def prepare(cls, dataset: Dataset, path: Path, progress: Callable[[int], None]) -> None:
        import pyarrow as pa
        from tiledbsoma import Experiment, Measurement

        shape = (dataset.n_cells, dataset.n_genes)
        with Experiment.create(path.as_uri()) as experiment:
            rna = experiment.add_new_collection("ms").add_new_collection(MEASUREMENT, Measurement)
            for owner, axis, count in ((experiment, "obs", shape[0]), (rna, "var", shape[1])):
                ids = pa.table({"soma_joinid": pa.array(np.arange(count))})
                owner.add_new_dataframe(axis, schema=ids.schema, domain=[(0, count - 1)]).write(ids)
            x = rna.add_new_collection("X").add_new_sparse_ndarray(
                LAYER, type=pa.float32(), shape=shape, platform_config={"tiledb": {"create": CENSUS}}
            )
            for first, slab in csr_slabs(dataset, SLAB_ROWS):
                cells = np.repeat(np.arange(first, first + len(slab.indptr) - 1), np.diff(slab.indptr))
                genes = slab.indices.astype(np.int64)
                x.write(pa.table({"soma_dim_0": cells, "soma_dim_1": genes, "soma_data": slab.data}))
                progress(first + len(slab.indptr) - 1)

    @classmethod
    def open(cls, dataset: Dataset, path: Path, condition: Condition, *, rows: bool) -> "TileDBSOMA":
        if condition.workers and condition.output == "csr":
            raise Incompatible("its worker processes cannot return sparse matrices")
        uri = dataset.url(path) if dataset.bucket else path.as_uri()
        return cls(uri, condition, cls.knobs | dict(condition.knobs), rows)

    def __init__(self, uri: str, condition: Condition, knobs: dict[str, int], rows: bool) -> None:
        from tiledbsoma import Experiment, SOMATileDBContext
        from tiledbsoma_ml import ExperimentDataset
        from torch.utils.data import DataLoader

        self.condition, self.rows, self.fetch_rows = condition, rows, knobs["io_batch_size"]
        config = _of_environment() if uri.startswith("s3:") else {}
        context = SOMATileDBContext(tiledb_config=config)
        with Experiment.open(uri, context=context) as experiment, experiment.axis_query(MEASUREMENT) as query:
            self.dataset = ExperimentDataset(
                query,
                layer_name=LAYER,
                batch_size=condition.batch_size,
                shuffle=condition.order == "random",
                seed=condition.seed,
                return_sparse_X=condition.output == "csr",
                **knobs,
            )
        # As in experiment_dataloader of tiledbsoma_ml, which would also set the start method for all other libraries.
        start = "spawn" if condition.workers else None
        self.loader = DataLoader(
            self.dataset,
            batch_size=None,
            collate_fn=_identity,
            num_workers=condition.workers,
            multiprocessing_context=start,
        )

    def epoch(self, index: int) -> Iterator[Batch]:
        self.dataset.set_epoch(index)
        for x, obs in self.loader:
            x = x if self.condition.output == "csr" else np.atleast_2d(x)  # a batch of one cell is one-dimensional
            yield Batch(to_output(x, self.condition.output), obs["soma_joinid"].to_numpy() if self.rows else None)

    def close(self) -> None:
        self.loader = self.dataset = None


def _of_environment() -> dict[str, str]:
    """TileDB's settings for the server of S3 that the environment names; TileDB itself reads only the keys there."""
    scheme, _, endpoint = os.environ["AWS_ENDPOINT_URL"].partition("://")
    return {
        "vfs.s3.scheme": scheme,
        "vfs.s3.endpoint_override": endpoint,
        "vfs.s3.use_virtual_addressing": "false",
        "vfs.s3.region": os.environ.get("AWS_REGION", "us-east-1"),
    }


def _identity(batch: tuple) -> tuple:
    return batch
