"""Adapter of TileDB-SOMA's PyTorch data set.

With the order "random", it reads random chunks of `shuffle_chunk_size` cells into a buffer of `io_batch_size` cells,
and shuffles the buffer.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from harness.condition import Condition
from harness.data.dataset import Dataset
from loaders.convert import to_output
from loaders.protocol import Batch, Incompatible
from loaders.slabs import csr_slabs

MEASUREMENT, LAYER = "RNA", "data"
SLAB_ROWS = 50_000  # cells per fragment; the library's own converter writes up to 100 million counts per fragment


class TileDBSOMA:
    """In the store, X has the schema that tiledbsoma.io writes. obs and var have only the column soma_joinid, which
    holds the row ids of the cells and the indices of the genes."""

    name = "tiledbsoma"
    imports = ("tiledbsoma_ml", "tiledbsoma", "torch")
    store = "soma/1"
    knobs = {"io_batch_size": 65536, "shuffle_chunk_size": 64}

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
            x = rna.add_new_collection("X").add_new_sparse_ndarray(LAYER, type=pa.float32(), shape=shape)
            for first, slab in csr_slabs(dataset, SLAB_ROWS):
                cells = np.repeat(np.arange(first, first + len(slab.indptr) - 1), np.diff(slab.indptr))
                genes = slab.indices.astype(np.int64)
                x.write(pa.table({"soma_dim_0": cells, "soma_dim_1": genes, "soma_data": slab.data}))
                progress(first + len(slab.indptr) - 1)

    @classmethod
    def open(cls, dataset: Dataset, path: Path, condition: Condition, *, rows: bool) -> "TileDBSOMA":
        if condition.workers and condition.output == "csr":
            raise Incompatible("its worker processes cannot return sparse matrices")
        return cls(path, condition, cls.knobs | dict(condition.knobs), rows)

    def __init__(self, path: Path, condition: Condition, knobs: dict[str, int], rows: bool) -> None:
        from tiledbsoma import Experiment
        from tiledbsoma_ml import ExperimentDataset
        from torch.utils.data import DataLoader

        self.condition, self.rows, self.fetch_rows = condition, rows, knobs["io_batch_size"]
        with Experiment.open(path.as_uri()) as experiment, experiment.axis_query(MEASUREMENT) as query:
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
        context = "spawn" if condition.workers else None
        self.loader = DataLoader(
            self.dataset,
            batch_size=None,
            collate_fn=_identity,
            num_workers=condition.workers,
            multiprocessing_context=context,
        )

    def epoch(self, index: int) -> Iterator[Batch]:
        self.dataset.set_epoch(index)
        for x, obs in self.loader:
            x = x if self.condition.output == "csr" else np.atleast_2d(x)  # a batch of one cell is one-dimensional
            yield Batch(to_output(x, self.condition.output), obs["soma_joinid"].to_numpy() if self.rows else None)

    def close(self) -> None:
        self.loader = self.dataset = None


def _identity(batch: tuple) -> tuple:
    return batch
