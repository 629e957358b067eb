"""What a consumer of a fleet receives while producers are killed, from a bucket whose connections are slow.

    python -m harness.experiments.fleet DATASET [RESULTS]

Runs a fleet of each size in PRODUCERS for SECONDS, kills one of its producers at each of KILLS_S, and appends a record
for each run to fleet-kills.jsonl in the folder RESULTS (by default that of this machine). Blocks of BLOCK, minibatches
of BATCH, fetches of FETCH minibatches; a producer decodes with one thread. Rates without kills are in the grid `fleet`.
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from threading import Timer
from typing import Any

from harness.bucket.process import environment, running
from harness.data import catalogue
from harness.data.dataset import Dataset
from harness.errors import UserError
from harness.machine import host
from harness.machine.lock import lock
from harness.records import jsonl, kills
from harness.records.kills import Kills
from harness.run.provenance import provenance
from loaders import fleet
from loadstone import BlockShuffling, open_h5ad
from loadstone.loader import Source

BLOCK, FETCH, BATCH = 64, 64, 64
PRODUCERS = 1, 2, 4
SECONDS, KILLS_S = 120.0, (40.0, 80.0)  # from the arrival of the first fetch
TTFB_MS, CONNECTION_MBPS = 30, 1  # of the bucket
SETTINGS: Any = {"sampler": BlockShuffling(BLOCK), "batch_size": BATCH, "fetch_factor": FETCH}


def main() -> int:
    if len(sys.argv) not in (2, 3):
        print("error: name a data set, and a folder of results if it is not this machine's", file=sys.stderr)
        return 2
    try:
        folder = Path(sys.argv[2]) if len(sys.argv) > 2 else Path("results") / host.machine()
        dataset = catalogue.load(sys.argv[1])
        with lock(folder):
            for producers in PRODUCERS:
                run = run_of(dataset, producers, SECONDS, KILLS_S)
                jsonl.append(folder / kills.FILE, run)
                print(f"{producers} producer(s): {len(run.cells)} fetches, the longest wait {longest_wait(run):.1f} s")
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{folder / kills.FILE}: python -m harness figures --results {folder}")
    return 0


def run_of(dataset: Dataset, producers: int, seconds: float, kills_s: Sequence[float]) -> Kills:
    """One run of about `seconds`, in which a producer is killed at each of the moments `kills_s`."""
    import ray

    killed: list[float] = []
    with served(dataset) as open_source, fleet.running(producers) as actors, closing(minibatches(open_source)) as taken:
        _, n = next(taken)
        start = time.perf_counter()

        def kill(actor: Any) -> None:
            killed.append(time.perf_counter() - start)
            ray.kill(actor, no_restart=False)  # Ray starts another process for it

        timers = [Timer(moment, kill, [actors[number % producers]]) for number, moment in enumerate(kills_s)]
        for timer in timers:
            timer.start()
        arrivals, cells = [0.0], [n]
        try:
            for is_first, n in taken:
                if is_first:
                    if (now := time.perf_counter() - start) >= seconds:
                        break
                    arrivals.append(now)
                    cells.append(0)
                cells[-1] += n
        finally:
            for timer in timers:
                timer.cancel()
    return Kills(
        dataset=dataset.name, producers=producers, ttfb_ms=TTFB_MS, connection_mbps=CONNECTION_MBPS,
        arrivals_s=arrivals, cells=cells, kills_s=killed, provenance=provenance("native_fleet", dataset),
    )  # fmt: skip


@contextmanager
def served(dataset: Dataset) -> Iterator[Callable[[], Source]]:
    """What opens the files of a data set in a bucket, of which an index is kept, so that no producer has to make it."""
    folder = Path(os.path.commonpath([path.parent for path in dataset.paths]))
    with (
        tempfile.TemporaryDirectory() as cache,
        running(folder, ttfb_ms=TTFB_MS, connection_mbps=CONNECTION_MBPS) as server,
    ):
        os.environ.update(environment(server.endpoint) | {"XDG_CACHE_HOME": cache})
        open_source = partial(open_h5ad, [server.url(path) for path in dataset.paths], threads=1)
        open_source().close()
        yield open_source


def minibatches(open_source: Callable[[], Source]) -> Generator[tuple[bool, int]]:
    """(whether it is the first of its fetch, the number of its cells) of every minibatch, epoch after epoch."""
    from loadstone.fleet import FleetDataset

    dataset = FleetDataset(open_source, **SETTINGS)
    for epoch in count():
        dataset.set_epoch(epoch)
        for number, batch in enumerate(dataset):
            yield number % FETCH == 0, len(batch["rows"])


def longest_wait(run: Kills) -> float:
    return max(later - earlier for earlier, later in zip(run.arrivals_s, run.arrivals_s[1:], strict=False))


if __name__ == "__main__":
    sys.exit(main())
