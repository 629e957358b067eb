"""The oracle: every cell in memory, a permutation, a slice. What the others must agree with."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import scipy.sparse as sp

from harness.condition import Condition
from harness.dataset import Dataset
from loaders.convert import to_output
from loaders.protocol import UNCONVERTED, Batch, Incompatible


class Reference:
    """Reads all files when opened, so it needs 8 bytes a non-zero count (4 an entry where X is dense)."""

    name = "reference"
    imports = ("anndata",)
    store = UNCONVERTED
    knobs = {}

    @classmethod
    def broken(cls, condition: Condition) -> dict[str, str]:
        return {}

    @classmethod
    def open(cls, dataset: Dataset, path: Path, condition: Condition, *, rows: bool) -> "Reference":
        if condition.workers:
            raise Incompatible("it holds all cells in one process")
        needed, free = 2 * 8 * dataset.nnz, psutil.virtual_memory().available
        if needed > free:
            raise Incompatible(
                f"reading all cells takes {needed / 1e9:.0f} GB of memory, of which {free / 1e9:.0f} are free"
            )
        return cls(dataset, condition, rows)

    def __init__(self, dataset: Dataset, condition: Condition, rows: bool) -> None:
        import anndata as ad

        self.x = sp.vstack([sp.csr_matrix(ad.read_h5ad(path).X, dtype=np.float32) for path in dataset.paths], "csr")
        self.condition, self.rows = condition, rows
        self.fetch_rows = condition.batch_size

    def epoch(self, index: int) -> Iterator[Batch]:
        n, size = self.x.shape[0], self.condition.batch_size
        order = np.arange(n)
        if self.condition.order == "random":
            np.random.default_rng([self.condition.seed, index]).shuffle(order)
        for start in range(0, n, size):
            ids = order[start : start + size]
            x = self.x[ids]
            yield Batch(to_output(x, self.condition.output), ids if self.rows else None)

    def close(self) -> None:
        del self.x
