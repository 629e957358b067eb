"""The consumer of emulated accelerators: takes minibatches, lets the accelerators compute, and measures the waiting."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any, NamedTuple

from harness.condition import FEWEST_FETCHES, Timing
from harness.run.measure import MOST_EDGES, Batches, Thinned, Trace, fetches_of, touch

FEWEST_STEPS = 5  # in a probe
LONG_S = 8.0  # after which a probe ends at the next fetch: nine tenths of the time of a fetch may be computing
HEAD_START = 2  # fetches, of each worker process, that are taken at full speed before a probe


class WarmUp(NamedTuple):
    """What a warm-up delivered: the epochs, with fractions, the rate, and the times of the first two minibatches."""

    epochs: float
    cells_per_s: float
    first_batch_s: float
    second_batch_s: float


@dataclass(frozen=True, kw_only=True)
class Consumer:
    """The accelerators' side: takes minibatches from `batches`, which `minibatches` returns.

    Fields as the arguments of `harness.run.utilisation.measure`.
    """

    batches: Iterator["Delivered"]
    timing: Timing
    clock: Callable[[], float]
    batch_size: int
    fetch_rows: int
    period: int
    epoch_rows: int
    step_s: float
    compute: Callable[[float], None]
    usage: Callable[[], Any]
    progress: Callable[[str, int, float], None]

    def warm_up(self) -> WarmUp:
        """Takes an epoch at full speed, or as much as comes in `timing.epoch_s`, for at least `timing.warmup_s`."""
        start, rows, elapsed, arrivals = self.clock(), 0, 0.0, []
        least_s, most_s = self.timing.warmup_s, self.timing.epoch_s
        while len(arrivals) < 2 or elapsed < least_s or (rows < self.epoch_rows and elapsed < most_s):
            rows += next(self.batches).rows
            elapsed = self.clock() - start
            arrivals = [*arrivals, elapsed][:2]
            self.progress("warm-up", rows, elapsed)
        return WarmUp(rows / self.epoch_rows, rows / elapsed, *arrivals)

    def probe(self, n: int, warm: WarmUp) -> Trace:
        """The window of one probe, of FEWEST_FETCHES fetches, or fewer if these take longer than LONG_S.

        What the loader read ahead while it was not needed is taken at full speed first. Otherwise a short probe would
        count it as fed at the loader's own pace.
        """
        cells = n * self.batch_size
        first_epoch, pending = self.drain(self.most_rows(cells)), 0
        if cells > self.period:  # such a step waits for all of its cells, if none was computed before
            first_epoch, pending = self.skip_step(cells)
        begun, begin = self.usage(), self.clock()
        rows = steps = fetches = 0
        edges = Thinned(MOST_EDGES)
        while True:
            if pending >= cells:
                self.compute(self.step_s)
                pending -= cells
                steps += 1
            delivered = next(self.batches)
            seconds = self.clock() - begin
            rows += delivered.rows
            pending += delivered.rows
            self.progress(f"{n} accelerators", rows, seconds)
            if not delivered.begins_fetch:
                continue
            fetches += self.period // self.fetch_rows
            edges.append([seconds, rows])
            is_whole = fetches >= FEWEST_FETCHES and rows >= FEWEST_FETCHES * self.fetch_rows
            is_enough = seconds >= self.timing.measure_s and (is_whole or seconds >= LONG_S)
            if is_enough and steps >= FEWEST_STEPS:
                break
        return Trace(
            rows=rows,
            seconds=seconds,
            edges=edges.items,
            waiting_s=max(0.0, seconds - steps * self.step_s),
            first_batch_s=warm.first_batch_s,
            second_batch_s=warm.second_batch_s,
            epochs=delivered.epoch - first_epoch,
            warmed_epochs=warm.epochs,
            start_s=begin,
            begun=begun,
            ended=self.usage(),
        )

    def most_rows(self, cells: int) -> int:
        """The rows that a probe with steps of this many cells takes at the most, unless the loader is late."""
        steps, seconds = self.timing.measure_s / self.step_s, LONG_S / self.step_s
        fetches = FEWEST_FETCHES * self.fetch_rows
        window = max(FEWEST_STEPS * cells, steps * cells, min(fetches, seconds * cells))
        return int(window) + 3 * cells + 2 * self.period

    def drain(self, ahead: int) -> int:
        """Takes HEAD_START fetches or more at full speed, until another begins. Returns the index of the epoch.

        The epoch then has as many rows left as `ahead`, if it is long enough. So the start of an epoch, when workers
        start, does not fall into one short probe and not into another.
        """
        head_start = HEAD_START * self.period
        is_long = self.epoch_rows >= head_start + self.period + ahead
        start, rows, epoch = self.clock(), 0, None
        while True:
            delivered = next(self.batches)
            if is_long and delivered.epoch != epoch:
                rows, epoch = 0, delivered.epoch
            rows += delivered.rows
            is_enough = rows > head_start and self.clock() - start >= self.timing.warmup_s
            if delivered.begins_fetch and is_enough and (delivered.left >= ahead or not is_long):
                return delivered.epoch

    def skip_step(self, cells: int) -> tuple[int, int]:
        """A step before the clock runs, until a fetch begins.

        Returns the index of the epoch, and the number of cells that have come for the next step.
        """
        pending, has_computed = 0, False
        while True:
            delivered = next(self.batches)
            pending += delivered.rows
            if has_computed and delivered.begins_fetch:
                return delivered.epoch, pending
            if pending >= cells:
                self.compute(self.step_s)
                pending -= cells
                has_computed = True


class Delivered(NamedTuple):
    """A minibatch: its rows, whether a full fetch begins with it, its epoch, and the rows of that left before it."""

    rows: int
    begins_fetch: bool
    epoch: int
    left: int


def minibatches(loader: Batches, period: int, epoch_rows: int) -> Iterator[Delivered]:
    """Minibatch after minibatch, epoch after epoch."""
    for index in count():
        left = epoch_rows
        for batch, begins_fetch in fetches_of(loader.epoch(index), period, epoch_rows):
            rows = touch(batch)[0]
            yield Delivered(rows, begins_fetch, index, left)
            left -= rows
        if left == epoch_rows:
            raise ValueError(f"epoch {index} held no batch")
