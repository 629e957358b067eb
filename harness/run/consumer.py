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

    batches: Iterator[tuple[int, bool, int]]
    timing: Timing
    clock: Callable[[], float]
    batch_size: int
    fetch_rows: int
    period: int
    step_s: float
    compute: Callable[[float], None]
    usage: Callable[[], Any]
    progress: Callable[[str, int, float], None]

    def warm_up(self, epoch_rows: int) -> WarmUp:
        """Takes an epoch at full speed, or as much as comes in `timing.epoch_s`, for at least `timing.warmup_s`."""
        start, rows, elapsed, arrivals = self.clock(), 0, 0.0, []
        least_s, most_s = self.timing.warmup_s, self.timing.epoch_s
        while len(arrivals) < 2 or elapsed < least_s or (rows < epoch_rows and elapsed < most_s):
            rows += next(self.batches)[0]
            elapsed = self.clock() - start
            arrivals = [*arrivals, elapsed][:2]
            self.progress("warm-up", rows, elapsed)
        return WarmUp(rows / epoch_rows, rows / elapsed, *arrivals)

    def probe(self, n: int, warm: WarmUp) -> Trace:
        """The window of one probe, of FEWEST_FETCHES fetches, or fewer if these take longer than LONG_S.

        What the loader read ahead while it was not needed is taken at full speed first. Otherwise a short probe would
        count it as fed at the loader's own pace.
        """
        cells = n * self.batch_size
        first_epoch, pending = self.drain(), 0
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
            delivered, begins_fetch, epoch = next(self.batches)
            seconds = self.clock() - begin
            rows += delivered
            pending += delivered
            self.progress(f"{n} accelerators", rows, seconds)
            if not begins_fetch:
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
            epochs=epoch - first_epoch,
            warmed_epochs=warm.epochs,
            start_s=begin,
            begun=begun,
            ended=self.usage(),
        )

    def drain(self) -> int:
        """Takes HEAD_START fetches or more at full speed, until another begins. Returns the index of the epoch."""
        start, rows = self.clock(), 0
        while True:
            delivered, begins_fetch, epoch = next(self.batches)
            rows += delivered
            is_enough = rows > HEAD_START * self.period and self.clock() - start >= self.timing.warmup_s
            if begins_fetch and is_enough:
                return epoch

    def skip_step(self, cells: int) -> tuple[int, int]:
        """A step before the clock runs, until a fetch begins.

        Returns the index of the epoch, and the number of cells that have come for the next step.
        """
        pending, has_computed = 0, False
        while True:
            rows, begins_fetch, epoch = next(self.batches)
            pending += rows
            if has_computed and begins_fetch:
                return epoch, pending
            if pending >= cells:
                self.compute(self.step_s)
                pending -= cells
                has_computed = True


def minibatches(loader: Batches, period: int, epoch_rows: int) -> Iterator[tuple[int, bool, int]]:
    """(rows, whether a full fetch begins, index of the epoch) of minibatch after minibatch, epoch after epoch."""
    for index in count():
        is_empty = True
        for batch, begins_fetch in fetches_of(loader.epoch(index), period, epoch_rows):
            is_empty = False
            yield touch(batch)[0], begins_fetch, index
        if is_empty:
            raise ValueError(f"epoch {index} held no batch")
