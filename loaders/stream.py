"""A streaming baseline: backed AnnData, read in the order of the files, one minibatch after another."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix, issparse, vstack

from harness.condition import Condition
from harness.data.dataset import Dataset
from loaders.convert import to_output
from loaders.protocol import UNCONVERTED, Batch, Incompatible


class Stream:
    """Reads `fetch_factor` minibatches as one slice. With `shuffle_buffer`, permutes the cells within each slice."""

    name = "stream"
    imports = ("anndata",)
    store = UNCONVERTED
    knobs = {"fetch_factor": 1, "shuffle_buffer": False}

    @classmethod
    def broken(cls, condition: Condition) -> dict[str, str]:
        return {}

    @classmethod
    def open(cls, dataset: Dataset, path: Path, condition: Condition, *, rows: bool) -> "Stream":
        if condition.workers:
            raise Incompatible("it is a loop in one process")
        if condition.order != "stream":
            raise Incompatible("it reads cells in the order of the files, even if it shuffles a buffer")
        return cls(dataset, condition, rows)

    def __init__(self, dataset: Dataset, condition: Condition, rows: bool) -> None:
        import anndata as ad

        knobs = self.knobs | dict(condition.knobs)
        self.files = [ad.read_h5ad(path, backed="r") for path in dataset.paths]
        self.offsets = dataset.offsets
        self.condition, self.rows, self.shuffle = condition, rows, knobs["shuffle_buffer"]
        self.fetch_rows = condition.batch_size * knobs["fetch_factor"]

    def epoch(self, index: int) -> Iterator[Batch]:
        rng = np.random.default_rng([self.condition.seed, index])
        size = self.condition.batch_size
        for start in range(0, self.offsets[-1], self.fetch_rows):
            ids = np.arange(start, min(start + self.fetch_rows, self.offsets[-1]))
            x = self._read(ids[0], ids[-1] + 1)
            if self.shuffle:
                permutation = rng.permutation(len(ids))
                ids, x = ids[permutation], x[permutation]
            for i in range(0, len(ids), size):
                part = slice(i, i + size)
                yield Batch(to_output(x[part], self.condition.output), ids[part] if self.rows else None)

    def _read(self, start: int, stop: int) -> csr_matrix | np.ndarray:
        """X of the cells with row ids start to stop - 1, which may be in several files."""
        parts = [
            file.X[max(start - first, 0) : stop - first]
            for file, first, end in zip(self.files, self.offsets, self.offsets[1:], strict=False)
            if start < end and stop > first
        ]
        return parts[0] if len(parts) == 1 else vstack(parts, "csr") if issparse(parts[0]) else np.concatenate(parts)

    def close(self) -> None:
        for file in self.files:
            file.file.close()
