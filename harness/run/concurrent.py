"""Several workers at the same time, like the ranks of a training run: their total throughput in wall-clock time."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier, BrokenBarrierError

from harness.run.job import Job, Outcome
from harness.run.process import Pause, Progress, Spawn

SUMMED = ("rows", "fetches", "cpu_s", "disk_read_bytes", "peak_rss_bytes")
LONGEST = ("open_s", "first_batch_s", "epochs")
BROKEN = "another of the processes did not begin its window"


def spawn_together(job: Job, timeout_s: float, progress: Progress, spawn: Spawn) -> Outcome:
    """The outcome of `job.condition.processes` workers that begin once all of them have opened.

    rows are the sum over all workers; seconds are from the beginning of the first window to the end of the last. The
    resulting rate is less than the sum of the workers' rates if they do not all deliver during all of that time. open_s
    and first_batch_s are of the slowest worker. If one worker fails, the outcome is its failure.
    """
    condition = job.condition
    if condition.cache == "bounded":
        return Outcome(status="skipped", reason="memory is bounded for one process at a time")
    barrier = Barrier(condition.processes)

    def one(rank: int) -> Outcome:
        has_begun = False

        def begin(_: int) -> None:
            nonlocal has_begun
            try:
                barrier.wait()
            except BrokenBarrierError:
                raise OSError(BROKEN) from None
            has_begun = True

        of_rank = replace(
            job,
            condition=replace(condition, seed=condition.seed + rank),
            order_path=None if rank else job.order_path,
        )
        try:
            return spawn(of_rank, condition.cores, timeout_s, _silent if rank else progress, Pause(begin))
        finally:
            if not has_begun:
                barrier.abort()

    with ThreadPoolExecutor(condition.processes) as pool:
        outcomes = list(pool.map(one, range(condition.processes)))
    failures = [outcome for outcome in outcomes if outcome.status != "ok"]
    if failures:
        return next((outcome for outcome in failures if outcome.reason != BROKEN), failures[0])
    windows = [outcome.answer for outcome in outcomes]
    begins, ends = zip(*(window.edges_s for window in windows), strict=True)
    sums = {name: _sum([getattr(window, name) for window in windows]) for name in SUMMED}
    most = {name: max(getattr(window, name) for window in windows) for name in LONGEST}
    seconds = max(ends) - min(begins)
    together = replace(windows[0], **sums, **most, seconds=seconds, windows=None, waiting_s=None)
    return replace(outcomes[0], answer=together)


def _sum(values: list[float | None]) -> float | None:
    return None if None in values else sum(values)


def _silent(phase: str, rows: int, seconds: float) -> None:
    pass
