"""Adapter of loadstone's fleet: actors of Ray read and decode the h5ad files, each with one thread."""

import os
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from harness.condition import Condition
from harness.data.dataset import Dataset
from loaders.convert import OF_NUMBA, csr
from loaders.protocol import UNCONVERTED, Batch, Incompatible
from loaders.tokens import encoding
from loadstone import BlockShuffling, Streaming, open_h5ad
from loadstone.fleet import cluster
from loadstone.fleet.produce import Recipe
from loadstone.tokens import TokenBatch

OPTIONAL = ("aiohttp", "annotated_types", "cloudpickle", "pyarrow", "pydantic")
OF_RAY = ("ray", "ray.autoscaler.v2.utils", *(name for name in OPTIONAL if find_spec(name)))
"""What starting a cluster and the first calls import; Ray goes without those in OPTIONAL that are not installed."""
STORE_BYTES = 1 << 30  # of Ray's object store
START_S = 120.0  # for all producers to run


class NativeFleet:
    """`producers` actors, and `ranks` consumers in threads of this process, which deliver their minibatches in turn."""

    name = "native_fleet"
    imports = ("loadstone", "loadstone.fleet.dataset", "obstore", *OF_RAY, *OF_NUMBA)
    store = UNCONVERTED
    objects = True
    tokenises = True
    knobs = {"block_size": 64, "fetch_factor": 64, "producers": 1, "ranks": 1}

    @classmethod
    def broken(cls, condition: Condition) -> dict[str, str]:
        if (cls.knobs | dict(condition.knobs))["ranks"] == 1:
            return {}
        return {
            "exact": "ranks have equally many cells: up to one cell fewer than there are ranks is left out",
            "batches": "each rank ends with batches that are not full",
        }

    @classmethod
    def open(cls, dataset: Dataset, path: Path, condition: Condition, *, rows: bool) -> "NativeFleet":
        check(dataset, condition)
        if condition.order == "stream" and (cls.knobs | dict(condition.knobs))["ranks"] > 1:
            raise Incompatible("with several ranks the cells do not come in the order of the files")
        return cls(dataset, condition, rows)

    def __init__(self, dataset: Dataset, condition: Condition, rows: bool) -> None:
        from loadstone.fleet import FleetDataset

        knobs = self.knobs | dict(condition.knobs)
        recipe, ranks = recipe_of(dataset, condition, knobs), knobs["ranks"]
        self.output, self.rows, self.n_genes = condition.output, rows, dataset.n_genes
        self.fetch_rows = condition.batch_size * knobs["fetch_factor"] * ranks  # those of all ranks arrive together
        self.batches: Generator[Batch] = (batch for batch in ())
        tokens = encoding(condition, dataset.n_genes) if condition.output == "tokens" else None
        arguments = {"dense": condition.output == "dense", "tokens": tokens, "ranks": ranks, **recipe.arguments}
        with ExitStack() as stack:
            stack.enter_context(running(knobs["producers"]))
            self.ranks = [FleetDataset(recipe.open_source, rank=rank, **arguments) for rank in range(ranks)]
            for rank in self.ranks:
                len(rank)  # a producer opens the files
            stack.callback(lambda: self.batches.close())
            self.stack = stack.pop_all()

    def epoch(self, index: int) -> Iterator[Batch]:
        self.batches.close()
        self.batches = self._epoch(index)
        return self.batches

    def _epoch(self, index: int) -> Generator[Batch]:
        for rank in self.ranks:
            rank.set_epoch(index)
        for batch in in_turn(self.ranks) if len(self.ranks) > 1 else self.ranks[0]:
            yield Batch(self._x(batch), batch["rows"].numpy() if self.rows else None)

    def _x(self, batch: Mapping[str, Any]) -> Any:
        if self.output == "tokens":
            parts = (batch.get(name) for name in TokenBatch._fields)
            return TokenBatch(*(None if part is None else part.numpy() for part in parts))
        x = batch["x"]
        if self.output == "csr":
            return csr(x.values().numpy(), x.col_indices().numpy(), x.crow_indices().numpy(), self.n_genes)
        return x

    def close(self) -> None:
        """Ends an epoch that has begun, then the producers, and then the cluster, if it was started here."""
        self.stack.close()


def check(dataset: Dataset, condition: Condition) -> None:
    """Raises Incompatible for what no fleet of producers supports."""
    if condition.workers:
        raise Incompatible("its producers read; set producers instead of workers")
    if dataset.x_format != "csr":
        raise Incompatible("its producers send rows of CSR, and X is dense")


def recipe_of(dataset: Dataset, condition: Condition, knobs: Mapping[str, Any]) -> Recipe:
    """What a producer of this condition opens, and the order of its fetches."""
    blocks = BlockShuffling(knobs["block_size"])
    return Recipe(
        open_source=partial(open_h5ad, list(dataset.urls if dataset.bucket else dataset.paths), threads=1),
        arguments={
            "sampler": Streaming() if condition.order == "stream" else blocks,
            "batch_size": condition.batch_size,
            "fetch_factor": knobs["fetch_factor"],
            "seed": condition.seed,
        },
    )


@contextmanager
def running(producers: int) -> Iterator[list[Any]]:
    """Producers, as actors of Ray, that run until the end of the `with` block.

    They are on the cluster that RAY_ADDRESS names, or on one of this machine, which then ends with them.
    Raises TimeoutError if they do not start, for example because the cluster has too few cores.
    """
    with ExitStack() as stack:
        if "RAY_ADDRESS" in os.environ:
            cluster.connect(None)
            actors = cluster.start(producers)
        else:
            _, actors = stack.enter_context(cluster.one_machine(producers, cpus=1, memory=STORE_BYTES))
        import ray

        for actor in actors:
            stack.callback(ray.kill, actor)
        if cluster.running(actors, START_S) < producers:
            raise TimeoutError(f"not all of {producers} producers ran after {START_S:.0f} s")
        yield actors


def in_turn[T](sources: Iterable[Iterable[T]]) -> Generator[T]:
    """An item of each source in turn, until all are at their ends.

    Each source is advanced in a thread of its own, by one item that has not been yielded yet.
    """
    with ExitStack() as stack:
        coming: deque[tuple[ThreadPoolExecutor, Iterator[T], Future[T | None]]] = deque()
        for source in sources:
            items = iter(source)
            if isinstance(items, Generator):
                stack.callback(items.close)
            pool = stack.enter_context(ThreadPoolExecutor(1))
            coming.append((pool, items, pool.submit(next, items, None)))
        while coming:
            pool, items, future = coming.popleft()
            if (item := future.result()) is not None:
                coming.append((pool, items, pool.submit(next, items, None)))
                yield item
