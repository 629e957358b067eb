"""Several workers at the same time, as the ranks of a training run read: what they deliver together by the clock on the
wall."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier, BrokenBarrierError
from typing import Any

from harness.condition import Condition
from harness.spawn import Pause, Told, spawn

SUMMED = ("rows", "fetches", "cpu_s", "disk_read_bytes", "peak_rss_bytes")
WAITED = "another of the processes did not come to begin"
LONGEST = ("open_s", "first_batch_s", "epochs")


def spawn_together(job: dict[str, Any], condition: Condition, timeout_s: float, told: Told) -> dict[str, Any]:
    """What `spawn` returns, of `condition.processes` workers that begin once all of them have opened.

    rows are of all, over the seconds from the first window's beginning to the last one's end: less than the sum of
    their own rates where they do not all deliver all that time. open_s and first_batch_s are of the slowest. One that
    fails makes the whole fail.
    """
    if condition.cache == "bounded":
        reason = "memory is bounded for one process at a time"
        return {"status": "skipped", "reason": reason, "log": ""}
    barrier = Barrier(condition.processes)

    def one(rank: int) -> dict[str, Any]:
        begun = False

        def begin(_: int) -> None:
            nonlocal begun
            try:
                barrier.wait()
            except BrokenBarrierError:
                raise OSError(WAITED) from None
            begun = True

        mine = replace(condition, seed=condition.seed + rank).to_dict()
        own = job | {"condition": mine, "order_path": None if rank else job["order_path"]}
        try:
            return spawn(own, condition.cores, timeout_s, told if rank == 0 else _silent, Pause(begin))
        finally:
            if not begun:
                barrier.abort()

    with ThreadPoolExecutor(condition.processes) as pool:
        found = list(pool.map(one, range(condition.processes)))
    failed = [outcome for outcome in found if outcome["status"] != "ok"]
    if failed:
        return next((outcome for outcome in failed if outcome["reason"] != WAITED), failed[0])
    begins, ends = zip(*(outcome["edges_s"] for outcome in found), strict=True)
    first = found[0]
    sums = {name: _sum([outcome[name] for outcome in found]) for name in SUMMED}
    most = {name: max(outcome[name] for outcome in found) for name in LONGEST}
    return first | sums | most | {"seconds": max(ends) - min(begins), "windows": None, "waiting_s": None}


def _sum(values: list[float | None]) -> float | None:
    return None if None in values else sum(values)


def _silent(phase: str, rows: int, seconds: float) -> None:
    pass
