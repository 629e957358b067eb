"""Adapter of anndata's AnnLoader over an AnnCollection of backed files: scDataset's baseline for random access."""

import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from harness.condition import Condition
from harness.data.dataset import Dataset
from loaders.convert import to_output
from loaders.protocol import UNCONVERTED, Batch

PER_CELL = (
    "with worker processes AnnLoader drops its batch sampler, asks for single cells "
    "and cannot collate the views it gets (anndata issue 767)"
)


class AnnLoader:
    """With dense output, AnnLoader's default converter makes the tensors. With CSR output, that converter is switched
    off: AnnLoader yields views of the collection, and the adapter reads their X."""

    name = "annloader"
    imports = ("anndata", "torch")
    store = UNCONVERTED
    knobs = {}

    @classmethod
    def broken(cls, condition: Condition) -> dict[str, str]:
        return {"delivers": PER_CELL} if condition.workers else {}

    @classmethod
    def open(cls, dataset: Dataset, path: Path, condition: Condition, *, rows: bool) -> "AnnLoader":
        return cls(dataset, condition, rows)

    def __init__(self, dataset: Dataset, condition: Condition, rows: bool) -> None:
        import anndata as ad
        import torch
        from anndata.experimental import AnnCollection
        from anndata.experimental.pytorch import AnnLoader as Library

        self.files = [ad.read_h5ad(path, backed="r") for path in dataset.paths]
        # Loaders deliver X only, so obs is left out of the collection.
        collection = AnnCollection(self.files, join_obs=None)
        self.condition, self.rows = condition, rows
        self.generator = torch.Generator()
        sampler = {}
        if condition.order == "random":
            # AnnLoader's own shuffle draws from numpy's global state; a sampler can be seeded.
            sampler["sampler"] = torch.utils.data.RandomSampler(range(dataset.n_cells), generator=self.generator)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # AnnLoader is deprecated, but is the baseline
            self.loader = Library(
                collection,
                batch_size=condition.batch_size,
                use_default_converter=condition.output == "dense",
                num_workers=condition.workers,
                **sampler,
            )
        self.fetch_rows = condition.batch_size

    def epoch(self, index: int) -> Iterator[Batch]:
        self.generator.manual_seed(int(np.random.SeedSequence([self.condition.seed, index]).generate_state(1)[0]))
        for view in self.loader:
            x = view.X.float() if self.condition.output == "dense" else to_output(view.X, "csr")
            yield Batch(x, np.asarray(view.oidx, np.int64) if self.rows else None)

    def close(self) -> None:
        for file in self.files:
            file.file.close()
