"""Adapter of lamindb's MappedCollection, which reads several h5ad files as one data set, one dense cell at a time."""

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from harness.condition import Condition
from harness.data.dataset import Dataset
from loaders.convert import to_output
from loaders.protocol import UNCONVERTED, Batch


class Mapped:
    """With dense output, batches are the tensors that torch's default collate function makes. With CSR output, the
    adapter converts these tensors; the conversion is part of the measured time."""

    name = "mapped"
    imports = ("lamindb", "torch")
    store = UNCONVERTED
    knobs = {}

    @classmethod
    def broken(cls, condition: Condition) -> dict[str, str]:
        return {}

    @classmethod
    def open(cls, dataset: Dataset, path: Path, condition: Condition, *, rows: bool) -> "Mapped":
        return cls(dataset, condition, rows)

    def __init__(self, dataset: Dataset, condition: Condition, rows: bool) -> None:
        import torch

        library = _library()

        class WithRowIds(library):
            """Adds the row id to each item; the library's own items identify only the file of the cell."""

            def __getitem__(self, i: int) -> dict:
                return {**super().__getitem__(i), "row": i}

        self.condition, self.rows = condition, rows
        self.cells = (WithRowIds if rows else library)(
            list(dataset.paths), join=None, parallel=condition.workers > 0, dtype="float32"
        )
        self.generator = torch.Generator()
        sampler = torch.utils.data.RandomSampler(self.cells, generator=self.generator)
        self.loader = torch.utils.data.DataLoader(
            self.cells,
            batch_size=condition.batch_size,
            sampler=sampler if condition.order == "random" else None,
            num_workers=condition.workers,
            worker_init_fn=self.cells.torch_worker_init_fn if condition.workers else None,
            multiprocessing_context="fork" if condition.workers else None,
        )
        self.fetch_rows = condition.batch_size

    def epoch(self, index: int) -> Iterator[Batch]:
        self.generator.manual_seed(int(np.random.SeedSequence([self.condition.seed, index]).generate_state(1)[0]))
        for batch in self.loader:
            x = batch["X"] if self.condition.output == "dense" else to_output(batch["X"].numpy(), "csr")
            yield Batch(x, batch["row"].numpy() if self.rows else None)

    def close(self) -> None:
        self.loader = None
        self.cells.close()


def _library() -> type:
    """lamindb's MappedCollection, imported without the user's settings.

    With those settings, the import would create a folder in the home directory and connect to the user's lamindb
    instance.
    """
    settings = {name: os.environ.pop(name, None) for name in ("LAMIN_SETTINGS_DIR", "LAMIN_CURRENT_INSTANCE")}
    with TemporaryDirectory() as folder:
        os.environ["LAMIN_SETTINGS_DIR"] = folder
        from lamindb.core import MappedCollection
    del os.environ["LAMIN_SETTINGS_DIR"]
    os.environ.update({name: value for name, value in settings.items() if value is not None})
    return MappedCollection
