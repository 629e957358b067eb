"""How many emulated accelerators a loader feeds: their utilisation, as MLPerf Storage defines it, and a search.

One loader feeds n accelerators that train one model in data-parallel steps. A step begins when n minibatches' worth of
cells have come; then all accelerators compute for the time of a step, while the loader's own threads and processes go
on. A minibatch is released once it has come, as if it were on its accelerator. All time in which nothing is computed
is waiting:

    utilisation = computing / (computing + waiting)
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from itertools import count
from typing import Any

from harness.condition import FEWEST_FETCHES, LEAST_UTILISATION, Timing
from harness.run.measure import MOST_EDGES, Batches, Thinned, Trace, fetches_of, touch

FEWEST_STEPS = 5  # in a probe
LONG_S = 8.0  # after which a probe ends at the next fetch: nine tenths of the time of a fetch may be computing
HEAD_START = 2  # fetches, of each worker process, that are taken at full speed before a probe
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
    `harness.run.measure` does.

    step_s: the seconds of a step. compute: passes a number of seconds. epoch_rows, period_rows: as for
    `harness.run.measure.measure`. usage: as `probe` there. progress: as there; the phase names the accelerators.

    Raises ValueError for an epoch without a batch.
    """
    period = period_rows or loader.fetch_rows
    batches = _batches(loader, period, epoch_rows)
    start, warmed, arrivals = clock(), 0, []
    elapsed = 0.0
    while elapsed < timing.warmup_s or (warmed < epoch_rows and elapsed < timing.epoch_s) or len(arrivals) < 2:
        rows, _, _ = next(batches)
        elapsed = clock() - start
        warmed += rows
        arrivals = [*arrivals, elapsed][:2]
        progress("warm-up", warmed, elapsed)
    probes: list[list[float]] = []
    traces: dict[int, Trace] = {}

    def utilisation(n: int) -> float:
        trace = probe(n)
        computing = trace.rows / (n * batch_size) * step_s  # with the part of a step for which cells have come
        probes.append([n, computing / (computing + trace.waiting_s), trace.seconds])
        traces[n] = trace
        return probes[-1][1]

    def probe(n: int) -> Trace:
        """The window of one probe, of FEWEST_FETCHES fetches, or fewer if these take longer than LONG_S.

        What the loader read ahead while it was not needed is taken at full speed first. Otherwise a short probe would
        count it as fed at the loader's own pace.
        """
        cells, pending = n * batch_size, 0
        rows, begins_fetch, epoch, taken = 0, False, 0, 0
        drained = clock()
        while not begins_fetch or taken <= HEAD_START * period or clock() - drained < timing.warmup_s:
            rows, begins_fetch, epoch = next(batches)
            taken += rows
        if cells > period:  # such a step waits for all of its cells, if none was computed before
            pending = skip_step(cells)
        begun, begin = usage(), clock()
        taken = steps = fetches = 0
        edges = Thinned(MOST_EDGES)
        first_epoch = epoch
        while True:
            if pending >= cells:
                compute(step_s)
                pending -= cells
                steps += 1
            rows, begins_fetch, epoch = next(batches)
            seconds = clock() - begin
            taken += rows
            pending += rows
            fetches += begins_fetch * period // loader.fetch_rows
            progress(f"{n} accelerators", taken, seconds)
            if begins_fetch:
                edges.append([seconds, taken])
            is_enough = seconds >= timing.measure_s and (fetches >= FEWEST_FETCHES or seconds >= LONG_S)
            if begins_fetch and is_enough and steps >= FEWEST_STEPS:
                break
        return Trace(
            rows=taken,
            seconds=seconds,
            edges=edges.items,
            waiting_s=max(0.0, seconds - steps * step_s),
            first_batch_s=arrivals[0],
            second_batch_s=arrivals[1],
            epochs=epoch - first_epoch,
            warmed_epochs=warmed / epoch_rows,
            start_s=begin,
            begun=begun,
            ended=usage(),
        )

    def skip_step(cells: int) -> int:
        """A step before the clock runs, up to the next fetch. Returns the cells that have come for the next step."""
        pending, has_computed = 0, False
        while True:
            rows, begins_fetch, _ = next(batches)
            pending += rows
            if has_computed and begins_fetch:
                return pending
            if pending >= cells:
                compute(step_s)
                pending -= cells
                has_computed = True

    first = int(warmed / elapsed * step_s / batch_size / 3)
    fed = most_fed(utilisation, first, most=max(1, epoch_rows // batch_size))
    return Fed(accelerators=fed, probes=probes, trace=traces[max(1, fed)])


def _batches(loader: Batches, period: int, epoch_rows: int) -> Iterator[tuple[int, bool, int]]:
    """(rows, whether a full fetch begins, index of the epoch) of minibatch after minibatch, epoch after epoch."""
    for index in count():
        is_empty = True
        for batch, begins_fetch in fetches_of(loader.epoch(index), period, epoch_rows):
            is_empty = False
            yield touch(batch), begins_fetch, index
        if is_empty:
            raise ValueError(f"epoch {index} held no batch")
