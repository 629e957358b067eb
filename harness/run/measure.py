"""The only stopwatch."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any, Protocol

from harness.condition import Timing

TOUCH_STEP_BYTES = 4096  # a memory page: what is never touched may never have been read


class Batches(Protocol):
    """What of a loader is timed."""

    fetch_rows: int

    def epoch(self, index: int) -> Iterator[Any]: ...


@dataclass(frozen=True, kw_only=True)
class Trace:
    """One window, from one batch's arrival to another's.

    rows: cells delivered after the first edge, up to and with the batch at the last; seconds between the edges;
    windows: the rows of each whole second of it, for diagnosis; waiting_s: of those seconds, what was spent waiting for
    the next batch; first_batch_s: from asking for the first epoch to its first batch; epochs: how many times the
    window began the data anew; start_s: what the clock said at the first edge; begun, ended: what `probe` said at the
    two edges.
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

    Both edges of the window are arrivals of the first batch of a fetch. A loader that fetches many batches at
    once delivers them in bursts; edges anywhere else would count a burst that was paid for before the window,
    or pay for one that is not counted. So the window is at least `timing.measure_s` long, and one fetch more at
    most; where a fetch takes longer than the window, it holds one fetch.

    The first batch of all is no edge: it may be handed over before the rest of its fetch is there.

    Both edges are of fetches of full length: an epoch's last one may be short, and a window that began on it
    would count less than it paid for, or more.

    epoch_rows: cells of an epoch. period_rows: rows after which the arrivals repeat themselves (the loader's
    fetch_rows times its processes). first_epoch: the number of the epoch to begin with. consumer_s: for so long
    each batch is in the hands of an emulated consumer, which leaves the processor alone, as an accelerator does.
    """
    period = period_rows or loader.fetch_rows
    start = clock()
    first = begin = None
    rows, windows, epochs, total = 0, [], 0, 0
    asked, waiting = start, 0.0
    begun: Any = None
    for index in count(first_epoch):
        in_epoch, fetch = 0, -1
        for batch in loader.epoch(index):
            now = clock()
            if now < asked:
                raise ValueError(f"the clock went back by {asked - now:g} s; this machine's time cannot be trusted")
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
                    begun, begin = probe(), clock()
            else:
                rows += n
                elapsed = now - begin
                waiting += now - asked
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
                        begun=begun,
                        ended=probe(),
                    )
            if consumer_s:
                sleep(consumer_s)
            asked = clock()
        if not in_epoch:
            raise ValueError(f"epoch {index} held no batch")
        epochs += begin is not None
    raise AssertionError("count() does not end")


def touch(batch: Any) -> int:
    """Reads a value of every page of the batch, so that nothing lazy is counted; returns its rows."""
    x = batch.x
    for part in (x.data, x.indices, x.indptr) if hasattr(x, "indptr") else (x.reshape(-1),):
        step = max(1, TOUCH_STEP_BYTES // part.itemsize)
        part[::step].sum()
    return x.shape[0]
