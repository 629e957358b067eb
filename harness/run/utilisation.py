"""How many emulated accelerators a loader feeds: their utilisation, as MLPerf Storage defines it, and a search.

One loader feeds n accelerators that train one model in data-parallel steps. A step begins when n minibatches' worth of
cells have come; then all accelerators compute for the time of a step, while the loader's own threads and processes go
on. A minibatch is released once it has come, as if it were on its accelerator. All time in which nothing is computed
is waiting:

    utilisation = computing / (computing + waiting)
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from harness.condition import LEAST_UTILISATION, Timing
from harness.run.consumer import Consumer, minibatches
from harness.run.measure import Batches, Trace

CLOSE = 0.05  # of the number fed: how near the search comes to a large number; to a number below 40 it comes exactly
BUSY_BYTES = bytes(256 << 10)  # fits into a core's own cache, and the GIL is released while it is hashed


@dataclass(frozen=True, kw_only=True)
class Fed:
    """accelerators: the most that were fed, 0 if not even one. probes: [accelerators, utilisation, seconds] of each.

    trace: of the probe with that many accelerators, or of that with one if none was fed. Its `waiting_s` is all time
    without computing.
    """

    accelerators: int
    probes: list[list[float]]
    trace: Trace


def most_fed(utilisation: Callable[[int], float], first: int, most: int) -> int:
    """The largest number of accelerators whose utilisation is at least LEAST_UTILISATION; 0 if that of one is less.

    utilisation: measures that of a number of accelerators, at least 1; it is assumed to fall as the number rises.
    first: the number tried first. most: the largest number that is tried. Numbers are doubled or halved until the
    answer lies between two of them, and the distance of these is bisected until it is 1, or CLOSE of the lower one.
    """
    fed, too_many, n = 0, most + 1, min(max(1, first), most)
    while True:
        if utilisation(n) >= LEAST_UTILISATION:
            fed = n
        else:
            too_many = n
        if too_many - fed <= max(1, CLOSE * fed):
            return fed
        if fed == 0:
            n //= 2
        elif too_many > most:
            n = min(2 * n, most)
        else:
            n = (fed + too_many) // 2


def busy(seconds: float, clock: Callable[[], float] = time.perf_counter) -> None:
    """Keeps one core busy with hashing for this long, without the GIL, as a driver or the preparation of data would."""
    until = clock() + seconds
    while clock() < until:
        sha256(BUSY_BYTES).digest()


COMPUTE = {"idle": time.sleep, "busy": busy}
"""By the consumer of a condition, what it does during a step."""


def measure(
    loader: Batches,
    timing: Timing,
    clock: Callable[[], float],
    *,
    epoch_rows: int,
    batch_size: int,
    step_s: float,
    compute: Callable[[float], None],
    period_rows: int | None = None,
    usage: Callable[[], Any] = lambda: None,
    progress: Callable[[str, int, float], None] = lambda phase, rows, seconds: None,
) -> Fed:
    """Warms up as in the regime "warm", then searches for the most accelerators that the loader feeds.

    The first number tried is a third of what the rate of the warm-up allows. A loader that reads on while the
    accelerators compute feeds three times as many, and one that does not a third as many. A step takes no more cells
    than an epoch has. Every probe begins and ends with the first minibatch of a fetch, as a window of
    `harness.run.measure` does, and lies within an epoch if an epoch is long enough.

    step_s: the seconds of a step. compute: passes a number of seconds. epoch_rows, period_rows: as for
    `harness.run.measure.measure`. usage: as `probe` there. progress: as there; the phase names the accelerators.

    Raises ValueError for an epoch without a batch.
    """
    period = period_rows or loader.fetch_rows
    batches = minibatches(loader, period, epoch_rows)
    consumer = Consumer(
        batches=batches,
        timing=timing,
        clock=clock,
        batch_size=batch_size,
        fetch_rows=loader.fetch_rows,
        period=period,
        epoch_rows=epoch_rows,
        step_s=step_s,
        compute=compute,
        usage=usage,
        progress=progress,
    )
    warm = consumer.warm_up()
    probes: list[list[float]] = []
    traces: dict[int, Trace] = {}

    def utilisation(n: int) -> float:
        trace = traces[n] = consumer.probe(n, warm)
        computing = trace.rows / (n * batch_size) * step_s  # with the part of a step for which cells have come
        probes.append([n, computing / (computing + trace.waiting_s), trace.seconds])
        return probes[-1][1]

    first = int(warm.cells_per_s * step_s / batch_size / 3)
    fed = most_fed(utilisation, first, most=max(1, epoch_rows // batch_size))
    return Fed(accelerators=fed, probes=probes, trace=traces[max(1, fed)])
