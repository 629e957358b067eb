"""The timed loop of all measurements: consumes minibatches, and measures a part of that time, the window."""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any, Protocol

import numpy as np

from harness.condition import FEWEST_FETCHES, Timing

CACHE_LINE = 64  # bytes
WARM_SHARE = 0.2  # of the first epoch, which the warm-up of the regime "first" delivers at most
MOST_EDGES = 64  # of a Trace


class Batches(Protocol):
    """The part of a loader that is measured."""

    fetch_rows: int

    def epoch(self, index: int) -> Iterator[Any]: ...


@dataclass(frozen=True, kw_only=True)
class Trace:
    """One window, from the arrival of one batch (the first edge) to that of another (the last edge).

    rows: the number of cells delivered after the first edge, up to and including the batch at the last edge.
    tokens: the number of tokens of these cells, without padding; None if batches hold none, or they were not counted.
    seconds: the time between the edges.
    edges: [seconds, rows] since the first edge, at no more than MOST_EDGES arrivals of a fetch, evenly chosen.
    waiting_s: the part of `seconds` that was spent waiting for the next batch.
    first_batch_s, second_batch_s: the time from requesting the first epoch to its first and second batch.
    epochs: the number of epochs that began within the window.
    warmed_epochs: the number of epochs that were delivered up to the first edge, with fractions.
    start_s: the clock at the first edge.
    begun, ended: the results of `probe` at the first and the last edge.
    """

    rows: int
    seconds: float
    edges: list[list[float]]
    waiting_s: float
    first_batch_s: float
    second_batch_s: float
    epochs: int
    warmed_epochs: float
    start_s: float
    begun: Any = None
    ended: Any = None
    tokens: int | None = None


def measure(
    loader: Batches,
    timing: Timing,
    clock: Callable[[], float],
    *,
    epoch_rows: int,
    period_rows: int | None = None,
    cache: str = "warm",
    consumer_s: float = 0.0,
    sleep: Callable[[float], None] = time.sleep,
    probe: Callable[[], Any] = lambda: None,
    progress: Callable[[str, int, float], None] = lambda phase, rows, seconds: None,
) -> Trace:
    """Consumes epoch after epoch: a warm-up, then a window of whole fetches.

    The window begins and ends when the first batch of a fetch arrives (its edges). A loader that fetches many batches
    at once delivers them in bursts. With edges elsewhere, the window could count a burst that was read before the
    window began, or include the time of a burst that it does not count. The window ends at the first edge after
    `timing.measure_s` at which it holds FEWEST_FETCHES fetches, and as many rows as these have: a loader that leaves
    out some cells comes to the edge of a fetch with a few rows less. Between two edges each worker process delivers a
    fetch.

    The very first batch is not an edge, because it may arrive before the rest of its fetch has been read. Both edges
    belong to fetches of full length: the last fetch of an epoch may be short, and a window that began with it would
    count too few or too many rows for its time.

    The warm-up lasts at least `timing.warmup_s`. In the regime "warm" it also lasts a whole epoch, unless that takes
    longer than `timing.epoch_s`. In the regime "first" it delivers at most WARM_SHARE of the epoch, and the window ends
    with the last full fetch of the first epoch, even if it is then shorter, or holds fewer fetches.

    clock: returns the time in seconds.
    epoch_rows: the number of cells in an epoch.
    period_rows: the number of rows in one burst: the loader's fetch_rows times the number of its worker processes
    (None: fetch_rows).
    cache: the regime of the condition.
    consumer_s: seconds for which an emulated consumer holds each batch without using the CPU, as an accelerator does.
    sleep: emulates the consumer.
    probe: called at both edges; its results are returned as `begun` and `ended`.
    progress(phase, rows so far, seconds so far) is called after each batch.

    Raises ValueError for an epoch without a batch, a first epoch of fewer than three full fetches in the regime
    "first", or a clock that goes back.
    """
    period = period_rows or loader.fetch_rows
    start = clock()
    arrivals: list[float] = []
    begin = None
    rows, epochs, total, fetches = 0, 0, 0, 0
    tokens: int | None = None
    edges = Thinned(MOST_EDGES)
    requested, waiting = start, 0.0
    first_probe: Any = None

    def warmed(elapsed: float) -> bool:
        if cache == "first":
            return elapsed >= timing.warmup_s or total + period > WARM_SHARE * epoch_rows
        return elapsed >= timing.warmup_s and (cache != "warm" or total >= epoch_rows or elapsed >= timing.epoch_s)

    for index in count():
        in_epoch = 0
        for batch, begins_fetch in fetches_of(loader.epoch(index), period, epoch_rows):
            now = clock()
            if now < requested:
                raise ValueError(f"the clock went back by {requested - now:g} s; this machine's time cannot be trusted")
            n, n_tokens = touch(batch)
            if len(arrivals) < 2:
                arrivals.append(now)
            total += n
            is_last = cache == "first" and in_epoch + 2 * period > epoch_rows
            in_epoch += n
            if begin is None:
                progress("warm-up", total, now - start)
                if begins_fetch and total > n and warmed(now - start):
                    warmed_epochs, first_probe, begin = total / epoch_rows, probe(), clock()
            else:
                rows += n
                tokens = None if n_tokens is None else (tokens or 0) + n_tokens
                fetches += begins_fetch * period // loader.fetch_rows
                elapsed = now - begin
                waiting += now - requested
                progress("window", rows, elapsed)
                if begins_fetch:
                    edges.append([elapsed, rows])
                is_enough = fetches >= FEWEST_FETCHES and rows >= FEWEST_FETCHES * loader.fetch_rows
                if begins_fetch and (is_last or (is_enough and elapsed >= timing.measure_s)):
                    return Trace(
                        rows=rows,
                        tokens=tokens,
                        seconds=elapsed,
                        edges=edges.items,
                        waiting_s=waiting,
                        first_batch_s=arrivals[0] - start,
                        second_batch_s=arrivals[1] - start,
                        epochs=epochs,
                        warmed_epochs=warmed_epochs,
                        start_s=begin,
                        begun=first_probe,
                        ended=probe(),
                    )
            if consumer_s:
                sleep(consumer_s)
            requested = clock()
        if not in_epoch:
            raise ValueError(f"epoch {index} held no batch")
        if cache == "first":
            raise ValueError(f"the first epoch has {in_epoch // period} full fetches, too few for a window within it")
        epochs += begin is not None
    raise AssertionError("count() does not end")


def fetches_of(batches: Iterable[Any], period: int, epoch_rows: int) -> Iterator[tuple[Any, bool]]:
    """Each minibatch of an epoch, and whether it is the first of a fetch of full length. period: rows of a fetch."""
    rows, fetch = 0, -1
    for batch in batches:
        is_full = rows + period <= epoch_rows or period > epoch_rows
        yield batch, is_full and rows // period != fetch
        fetch = rows // period
        rows += rows_of(batch)


class Thinned:
    """A list that keeps at most `most` of the items appended, evenly chosen; every second one is dropped when full."""

    def __init__(self, most: int) -> None:
        self.items: list[Any] = []
        self.most, self.step, self.seen = most, 1, 0

    def append(self, item: Any) -> None:
        self.seen += 1
        if self.seen % self.step:
            return
        self.items.append(item)
        if len(self.items) == self.most:
            self.items, self.step = self.items[1::2], 2 * self.step


def touch(batch: Any) -> tuple[int, int | None]:
    """Reads a value from every cache line of the batch, as a consumer would.

    Returns the number of rows, and of tokens without padding; None if the batch holds no tokens.
    """
    x = batch.x
    if hasattr(x, "mask"):
        for part in (x.ids, x.values):
            if part is not None:
                part.reshape(-1)[:: CACHE_LINE // part.itemsize].sum()
        return len(x.ids), int(np.count_nonzero(x.mask))
    for part in (x.data, x.indices, x.indptr) if hasattr(x, "indptr") else (x.reshape(-1),):
        part[:: max(1, CACHE_LINE // part.itemsize)].sum()
    return x.shape[0], None


def rows_of(batch: Any) -> int:
    """The number of cells of a batch."""
    return len(batch.x.ids) if hasattr(batch.x, "ids") else batch.x.shape[0]
