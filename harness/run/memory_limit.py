"""A worker with limited memory: its page cache holds only a share of the store, as if the store were larger."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.machine import cgroup, pagecache
from harness.run.job import Job, Outcome
from harness.run.process import Pause, Progress, Spawn


def spawn_bounded(
    job: Job, files: Sequence[Path], timeout_s: float, progress: Progress, spawn: Spawn
) -> tuple[Outcome, dict[str, Any] | None]:
    """Runs a worker with limited memory. Returns (its outcome, a description of the limit; None if none was set).

    The limit is the memory that the worker holds once its buffers are full, plus `memory_fraction` (of the condition)
    of the size of `files`. If the limit kills the worker, another worker runs the job without a limit, to measure how
    much memory it needs. spawn: gives a job to a worker.
    """
    condition = job.condition
    cache_bytes = int(condition.memory_fraction * sum(file.stat().st_size for file in files))
    bound: dict[str, Any] | None = None
    with cgroup.group() as group:
        if group is None:
            reason = "this user can make no control group on this system, which the memory limit needs"
            return Outcome(status="skipped", reason=reason), None

        def begin(held_bytes: int) -> None:
            nonlocal bound
            pagecache.evict(files)
            bound = {"kind": group.kind, "held_bytes": held_bytes, "limit_bytes": held_bytes + cache_bytes}
            try:
                group.limit(bound["limit_bytes"])
            except OSError as error:
                raise OSError(f"its memory could not be bounded: {error}") from error

        outcome = spawn(job, condition.cores, timeout_s, progress, Pause(begin, group))
    if outcome.out_of_memory and bound is None:
        outcome = replace(outcome, reason="the system ran out of memory before there was a limit")
    elif outcome.out_of_memory:
        progress("weigh", 0, 0.0)
        weighed = spawn(replace(job, task="weigh", order_path=None), condition.cores, timeout_s, progress)
        limit, held, cache = (n / 1e6 for n in (bound["limit_bytes"], bound["held_bytes"], cache_bytes))
        more = (weighed.answer.held_bytes if weighed.answer else 0) / 1e6 - limit
        needs = f"needs {more:,.0f} MB more" if more > 0 else "needs more at times"
        reason = (
            f"it {needs} than its limit of {limit:,.0f} MB: {held:,.0f} held with full buffers, {cache:,.0f} of cache"
        )
        outcome = replace(outcome, reason=reason)
    return outcome, bound
