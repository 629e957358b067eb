"""Several workers at the same time, like the ranks of a training run: their total throughput in wall-clock time."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier, BrokenBarrierError

from harness.machine.cgroup import Group
from harness.run.job import Job, Outcome
from harness.run.process import Progress, Spawn

SUMMED = ("rows", "tokens", "fetches", "cpu_s", "disk_read_bytes", "peak_rss_bytes", "held_bytes", "imported_bytes")
LARGEST = (
    "import_s",
    "open_s",
    "first_batch_s",
    "second_batch_s",
    "epochs",
    "disk_reads",
    "requests",
    "received_bytes",
)
BROKEN = "another of the processes did not begin its window"


def spawn_together(
    job: Job, timeout_s: float, progress: Progress, group: Group | None, begin: Callable[[str], None], spawn: Spawn
) -> Outcome:
    """Runs `job.condition.processes` workers, which begin to measure once all have opened, and joins their outcomes.

    In the joint window, the fields SUMMED are sums over all workers, and the fields LARGEST are the largest of any
    worker. `seconds` is the time from the beginning of the first worker's window to the end of the last worker's. The
    joint rate is therefore less than the sum of the workers' rates if not all workers deliver during all of that time.
    Each worker has its own seed; only the first reports progress and records its order. If a worker fails, the outcome
    is its failure. group: the control group of all workers together. begin: as for `spawn`, of each worker.
    """
    condition = job.condition
    barrier = Barrier(condition.processes)

    def one(rank: int) -> Outcome:
        has_begun = False

        def begin_together(point: str) -> None:
            nonlocal has_begun
            begin(point)
            if point != "opened":
                return
            try:
                barrier.wait()
            except BrokenBarrierError:
                raise OSError(BROKEN) from None
            has_begun = True

        of_rank = replace(
            job,
            condition=replace(condition, seed=condition.seed + rank),
            order_path=None if rank else job.order_path,
            waits=(*job.waits, "opened"),
        )
        try:
            return spawn(of_rank, condition.cores, timeout_s, _silent if rank else progress, group, begin_together)
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
    joint = {
        name: _known(joined, [getattr(window, name) for window in windows])
        for names, joined in ((SUMMED, sum), (LARGEST, max))
        for name in names
    }
    seconds = max(ends) - min(begins)
    together = replace(windows[0], **joint, seconds=seconds, edges=None, waiting_s=None)
    return replace(outcomes[0], answer=together)


def _known(joined: Callable[[list], float], values: list[float | None]) -> float | None:
    return None if None in values else joined(values)


def _silent(phase: str, rows: int, seconds: float) -> None:
    pass
