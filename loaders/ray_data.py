"""Adapter of Ray Data: the producers of loadstone's fleet as the actors of its pool."""

import pickle
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np

from harness.condition import Condition
from harness.data.dataset import Dataset
from loaders.convert import OF_NUMBA, csr
from loaders.fleet import OF_RAY, check, recipe_of, running
from loaders.protocol import UNCONVERTED, Batch
from loadstone.fleet.produce import Producer, Recipe
from loadstone.fleet.wire import Slab
from loadstone.reading.densify import Densifier

EPOCHS = 20  # in one data set of Ray Data, if they follow one another


class RayData:
    """A range of fetches, which `producers` actors make, in order.

    With a data set of Ray Data for each epoch, all actors would end with it, and open the files again in the next.
    Therefore a data set goes on for EPOCHS epochs; it ends when an epoch is dropped before its end.
    """

    name = "ray_data"
    imports = ("ray.data", "loadstone", "obstore", *OF_RAY, *OF_NUMBA)
    store = UNCONVERTED
    objects = True
    knobs = {"block_size": 64, "fetch_factor": 64, "producers": 1}

    @classmethod
    def broken(cls, condition: Condition) -> dict[str, str]:
        return {}

    @classmethod
    def open(cls, dataset: Dataset, path: Path, condition: Condition, *, rows: bool) -> "RayData":
        check(dataset, condition)
        return cls(dataset, condition, rows)

    def __init__(self, dataset: Dataset, condition: Condition, rows: bool) -> None:
        from ray.data import DataContext

        knobs = self.knobs | dict(condition.knobs)
        self.condition, self.rows, self.producers = condition, rows, knobs["producers"]
        self.recipe = recipe_of(dataset, condition, knobs)
        self.n_cells, self.n_genes = dataset.n_cells, dataset.n_genes
        self.fetch_rows = condition.batch_size * knobs["fetch_factor"]
        self.slabs: Generator[Slab] = (slab for slab in ())
        self.next_epoch = -1
        with ExitStack() as stack:
            stack.enter_context(running(0))
            context = DataContext.get_current()
            context.execution_options.preserve_order = True
            context.enable_progress_bars = False
            stack.callback(lambda: self.slabs.close())
            self.stack = stack.pop_all()

    def epoch(self, index: int) -> Iterator[Batch]:
        if index != self.next_epoch:
            self.slabs.close()
            self.slabs = self._slabs(index)
        self.next_epoch = -1
        densifier = Densifier(self.n_genes, np.float32)
        for slab in islice(self.slabs, -(-self.n_cells // self.fetch_rows)):
            for start in range(0, len(slab.ids), self.condition.batch_size):
                stop = min(start + self.condition.batch_size, len(slab.ids))
                cells = slab.cut(start, stop)
                x = csr(*cells, self.n_genes) if self.condition.output == "csr" else densifier.dense(*cells)
                yield Batch(x, slab.ids[start:stop] if self.rows else None)
        self.next_epoch = index + 1

    def _slabs(self, first: int) -> Generator[Slab]:
        """The fetches of epoch `first`, and of those after it."""
        import ray

        for start in count(first, EPOCHS):
            n = EPOCHS * -(-self.n_cells // self.fetch_rows)
            fetches = ray.data.range(n, override_num_blocks=n).map(
                Fetches,
                fn_constructor_args=(self.recipe, start, self.fetch_rows, self.n_cells),
                compute=ray.data.ActorPoolStrategy(size=self.producers),
                num_cpus=0.5 / self.producers,  # so that Ray allows more of them than there are cores
            )
            for row in fetches.iter_rows():
                yield pickle.loads(row["slab"])

    def close(self) -> None:
        """Ends the data set of Ray Data with its actors, and then the cluster, if it was started here."""
        self.stack.close()


class Fetches:
    """An actor, which makes fetches by their numbers, counted from the beginning of epoch `first`."""

    def __init__(self, recipe: Recipe, first: int, fetch_rows: int, n_cells: int) -> None:
        self.producer, self.first = Producer(recipe), first
        self.starts = range(0, n_cells, fetch_rows)
        self.n_cells = n_cells

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        epoch, fetch = divmod(int(row["id"]), len(self.starts))
        start = self.starts[fetch]
        span = (start, min(start + self.starts.step, self.n_cells))
        return {"slab": pickle.dumps(self.producer.produce(self.first + epoch, [span]))}
