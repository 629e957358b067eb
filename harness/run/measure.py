"""The timed loop of all measurements: consumes minibatches, and measures a part of that time, the window."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any, Protocol

from harness.condition import Timing

TOUCH_STEP_BYTES = 4096  # a memory page; lazily loaded pages are read only when they are touched


class Batches(Protocol):
    """The part of a loader that is measured."""

    fetch_rows: int

    def epoch(self, index: int) -> Iterator[Any]: ...


@dataclass(frozen=True, kw_only=True)
class Trace:
    """One window, from the arrival of one batch (the first edge) to that of another (the last edge).

    rows: the number of cells delivered after the first edge, up to and including the batch at the last edge.
    seconds: the time between the edges.
    windows: the number of rows delivered in each whole second of the window, for diagnosis.
    waiting_s: the part of `seconds` that was spent waiting for the next batch.
    first_batch_s: the time from requesting the first epoch to the arrival of its first batch.
    epochs: the number of epochs that began within the window.
    start_s: the clock at the first edge.
    begun, ended: the results of `probe` at the first and the last edge.
    """

    rows: int
    seconds: float
    windows: list[int]
    waiting_s: float
    first_batch_s: float
    epochs: int
    start_s: float
    begun: Any = None
    ended: Any = None


def measure(
    loader: Batches,
    timing: Timing,
    clock: Callable[[], float],
    *,
    epoch_rows: int,
    period_rows: int | None = None,
    first_epoch: int = 0,
    consumer_s: float = 0.0,
    sleep: Callable[[float], None] = time.sleep,
    probe: Callable[[], Any] = lambda: None,
    progress: Callable[[str, int, float], None] = lambda phase, rows, seconds: None,
) -> Trace:
    """Consumes epoch after epoch: a warm-up, then a window of whole fetches.

    The window begins and ends when the first batch of a fetch arrives (its edges). A loader that fetches many batches
    at once delivers them in bursts. With edges elsewhere, the window could count a burst that was read before the
    window began, or include the time of a burst that it does not count. The window ends at the first edge after
    `timing.measure_s`, so that it is longer than that by at most about one fetch.

    The very first batch is not an edge, because it may arrive before the rest of its fetch has been read. Both edges
    belong to fetches of full length: the last fetch of an epoch may be short, and a window that began with it would
    count too few or too many rows for its time.

    clock: returns the time in seconds.
    epoch_rows: the number of cells in an epoch.
    period_rows: the number of rows in one burst: the loader's fetch_rows times the number of its worker processes
    (None: fetch_rows).
    first_epoch: the index of the first epoch.
    consumer_s: seconds for which an emulated consumer holds each batch without using the CPU, as an accelerator does.
    sleep: emulates the consumer.
    probe: called at both edges; its results are returned as `begun` and `ended`.
    progress(phase, rows so far, seconds so far) is called after each batch.

    Raises ValueError for an epoch without a batch, or a clock that goes back.
    """
    period = period_rows or loader.fetch_rows
    start = clock()
    first = begin = None
    rows, windows, epochs, total = 0, [], 0, 0
    requested, waiting = start, 0.0
    first_probe: Any = None
    for index in count(first_epoch):
        in_epoch, fetch = 0, -1
        for batch in loader.epoch(index):
            now = clock()
            if now < requested:
                raise ValueError(f"the clock went back by {requested - now:g} s; this machine's time cannot be trusted")
            n = touch(batch)
            first = now if first is None else first
            total += n
            full = in_epoch + period <= epoch_rows or period > epoch_rows
            is_edge = full and in_epoch // period != fetch
            fetch = in_epoch // period
            in_epoch += n
            if begin is None:
                progress("warm-up", total, now - start)
                if is_edge and total > n and now - start >= timing.warmup_s:
                    first_probe, begin = probe(), clock()
            else:
                rows += n
                elapsed = now - begin
                waiting += now - requested
                windows.extend([0] * (int(elapsed) + 1 - len(windows)))
                windows[int(elapsed)] += n
                progress("window", rows, elapsed)
                if is_edge and elapsed >= timing.measure_s:
                    return Trace(
                        rows=rows,
                        seconds=elapsed,
                        windows=windows[: int(elapsed)],
                        waiting_s=waiting,
                        first_batch_s=first - start,
                        epochs=epochs,
                        start_s=begin,
                        begun=first_probe,
                        ended=probe(),
                    )
            if consumer_s:
                sleep(consumer_s)
            requested = clock()
        if not in_epoch:
            raise ValueError(f"epoch {index} held no batch")
        epochs += begin is not None
    raise AssertionError("count() does not end")


def touch(batch: Any) -> int:
    """Reads a value from every memory page of the batch, so that lazily loaded data is read. Returns the number of
    rows."""
    x = batch.x
    for part in (x.data, x.indices, x.indptr) if hasattr(x, "indptr") else (x.reshape(-1),):
        step = max(1, TOUCH_STEP_BYTES // part.itemsize)
        part[::step].sum()
    return x.shape[0]
