"""What a fleet of producers gives: against the loader in the process, against Ray Data, and when a producer is killed.

    python -m harness.experiments.fleet DATASET [ROUNDS]

It prints the tables of docs/scale-out.md. All read the same cells from the page cache: blocks of BLOCK, minibatches
of BATCH, fetches of FETCH minibatches. A rate is that of FETCHES fetches, after as many that are not counted. A table
shows the median of the rounds and their range; the settings alternate in a round. A producer decodes with one thread.
"""

import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

from harness.bucket.process import environment, running
from harness.data import catalogue
from loadstone import BlockLoader, BlockShuffling, open_h5ad
from loadstone.loader import Source

BLOCK, FETCH, BATCH = 64, 64, 64
FETCHES, FETCHES_OF_BUCKET = 12, 4
TTFB_MS, CONNECTION_MBPS = 30, 1  # of the bucket
STORE_BYTES = 1 << 30  # of Ray's object store
SETTINGS: Any = {"sampler": BlockShuffling(BLOCK), "batch_size": BATCH, "fetch_factor": FETCH}

Rates = dict[str, list[float]]


def main() -> None:
    dataset, rounds = catalogue.load(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 3
    local = partial(open_h5ad, list(dataset.paths), threads=1)
    rates: Rates = {}
    for _ in range(rounds):
        for threads in (1, 2):
            label = f"the loader in the process, {threads} thread(s)"
            rates.setdefault(label, []).append(in_process(partial(open_h5ad, list(dataset.paths), threads=threads)))
        for producers, ranks in ((1, 1), (2, 1), (4, 1), (2, 2)):
            label = f"a fleet, {producers} producer(s), {ranks} rank(s)"
            rates.setdefault(label, []).append(of_fleet(local, producers, ranks, FETCHES))
        rates.setdefault("Ray Data, 2 actors", []).append(of_ray_data(local))
    print_table("cells/s", rates)
    waits = [longest_wait(local) for _ in range(rounds)]
    print(f"\nOf two producers one is killed: the longest wait for a minibatch, s: {shown(waits, 2)}\n")
    scaled: Rates = {}
    for _ in range(rounds):
        for producers in (1, 2, 4):
            scaled.setdefault(f"{producers} producer(s)", []).append(of_bucket(dataset.paths, producers))
    print_table(f"cells/s from a bucket, {CONNECTION_MBPS} Mbit/s a connection", scaled)


def in_process(open_source: Callable[[], Source]) -> float:
    with closing(BlockLoader(open_source(), **SETTINGS)) as loader:
        return rate((batch.x for epoch in count() for batch in loader.epoch(epoch)), FETCHES)


def of_fleet(open_source: Callable[[], Source], producers: int, ranks: int, fetches: int) -> float:
    """The rate of all ranks together."""
    with fleet(producers), ThreadPoolExecutor(ranks) as pool:
        return sum(pool.map(lambda rank: rate(batches(open_source, rank, ranks), fetches), range(ranks)))


@contextmanager
def fleet(producers: int) -> Iterator[list[Any]]:
    from loadstone.fleet import cluster

    with cluster.one_machine(producers, cpus=1, memory=STORE_BYTES) as (_, actors):
        cluster.running(actors, 60)
        yield actors


def batches(open_source: Callable[[], Source], rank: int = 0, ranks: int = 1) -> Iterator[Any]:
    """The minibatches of a rank, epoch after epoch, as CSR tensors."""
    from loadstone.fleet import FleetDataset

    dataset = FleetDataset(open_source, rank=rank, ranks=ranks, **SETTINGS)
    for epoch in count():
        dataset.set_epoch(epoch)
        for batch in dataset:
            yield batch["x"]


def of_ray_data(open_source: Callable[[], Source]) -> float:
    """Ray Data with the same producers as actors of its pool, which return a fetch as one row."""
    import pickle

    import ray

    from loadstone.fleet.produce import Producer, Recipe

    class Fetches:
        def __init__(self) -> None:
            self.producer = Producer(Recipe(open_source=open_source, arguments=SETTINGS))

        def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
            start = int(row["id"]) * BATCH * FETCH
            return {"slab": pickle.dumps(self.producer.produce(0, [(start, start + BATCH * FETCH)]))}

    with fleet(1) as actors:
        for actor in actors:
            ray.kill(actor)
        ray.data.DataContext.get_current().execution_options.preserve_order = True
        ray.data.DataContext.get_current().enable_progress_bars = False
        fetched = ray.data.range(2 * FETCHES + 1, override_num_blocks=2 * FETCHES + 1).map(Fetches, concurrency=2)

        def cells() -> Iterator[Any]:
            for row in fetched.iter_rows():
                slab = pickle.loads(row["slab"])
                for start in range(0, BATCH * FETCH, BATCH):
                    yield slab.cut(start, start + BATCH)

        return rate(cells(), FETCHES)


def longest_wait(open_source: Callable[[], Source]) -> float:
    """The longest wait for a minibatch, in seconds, while one of two producers is killed as soon as it is there."""
    import ray

    with fleet(2) as actors:
        pids = ray.get([actor.pid.remote() for actor in actors])
        cells, waits = batches(open_source), []
        for i in range(2 * FETCHES * FETCH):
            if i == FETCHES * FETCH:
                os.kill(pids[0], signal.SIGKILL)
                waits.clear()
            start = time.perf_counter()
            next(cells)
            waits.append(time.perf_counter() - start)
        cells.close()
        return max(waits)


def of_bucket(paths: tuple[Path, ...], producers: int) -> float:
    folder = Path(os.path.commonpath([path.parent for path in paths]))
    with (
        tempfile.TemporaryDirectory() as cache,
        running(folder, ttfb_ms=TTFB_MS, connection_mbps=CONNECTION_MBPS) as server,
    ):
        os.environ.update(environment(server.endpoint) | {"XDG_CACHE_HOME": cache})
        open_source = partial(open_h5ad, [server.url(path) for path in paths], threads=1)
        open_source().close()  # the index is kept, so that no producer has to make it
        return of_fleet(open_source, producers, 1, FETCHES_OF_BUCKET)


def rate(cells: Iterator[Any], fetches: int) -> float:
    """Cells a second over whole fetches, of minibatches as CSR."""
    for _ in range(fetches * FETCH):
        touched(next(cells))
    touched(next(cells))
    start, rows = time.perf_counter(), 0
    for _ in range(fetches * FETCH):
        rows += touched(next(cells))
    return rows / (time.perf_counter() - start)


def touched(x: Any) -> int:
    """Reads a value from every cache line, as the suite's consumer does. Returns the number of rows."""
    if hasattr(x, "crow_indices"):
        arrays = [part.numpy() for part in (x.values(), x.col_indices(), x.crow_indices())]
    else:
        arrays = [x.data, x.indices, x.indptr]
    for array in arrays:
        array[:: 64 // array.itemsize].sum()
    return len(arrays[-1]) - 1


def print_table(title: str, rates: Rates) -> None:
    print(f"| | {title} |\n| --- | ---: |")
    for label, values in rates.items():
        print(f"| {label} | {shown(values, 0)} |")


def shown(values: list[float], digits: int) -> str:
    """The median, and the range of several values."""
    low, high = (f"{value:,.{digits}f}" for value in (min(values), max(values)))
    return f"{median(values):,.{digits}f}" + (f" ({low} to {high})" if len(values) > 1 else "")


if __name__ == "__main__":
    main()
