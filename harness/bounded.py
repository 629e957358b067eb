"""A worker in bounded memory: its page cache holds no more than a share of the store, as if the store were larger."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness import cgroup, pagecache
from harness.condition import Condition
from harness.spawn import Pause, Told, spawn


def spawn_bounded(
    job: dict[str, Any], condition: Condition, files: Sequence[Path], timeout_s: float, told: Told
) -> dict[str, Any]:
    """What `spawn` returns of a worker with bounded memory, and as `bound` how it was bounded (None: it was not).

    The limit is what the worker holds once its buffers are full, and the condition's share of the store's files. One
    that needs more is run again without a limit, to say how much.
    """
    cache_bytes = int(condition.memory_fraction * sum(file.stat().st_size for file in files))
    said: dict[str, Any] | None = None
    with cgroup.group() as group:
        if group is None:
            reason = "this system lets this user make no control group, with which memory is bounded"
            return {"status": "skipped", "reason": reason, "log": "", "bound": None}

        def begin(held_bytes: int) -> None:
            nonlocal said
            pagecache.evict(files)
            said = {"kind": group.kind, "held_bytes": held_bytes, "limit_bytes": held_bytes + cache_bytes}
            try:
                group.limit(said["limit_bytes"])
            except OSError as error:
                raise OSError(f"its memory could not be bounded: {error}") from error

        outcome = spawn(job, condition.cores, timeout_s, told, Pause(begin, group))
    if outcome["status"] == "out of memory" and said is None:
        outcome |= {"status": "failed", "reason": "the system ran out of memory before there was a limit"}
    elif outcome["status"] == "out of memory":
        told("weigh", 0, 0.0)
        weighed = spawn(job | {"task": "weigh", "order_path": None}, condition.cores, timeout_s, told)
        limit, held, cache = (n / 1e6 for n in (said["limit_bytes"], said["held_bytes"], cache_bytes))
        more = weighed.get("held_bytes", 0) / 1e6 - limit
        needs = f"needs {more:,.0f} MB more" if more > 0 else "needs more, at moments,"
        reason = (
            f"it {needs} than its limit of {limit:,.0f} MB: {held:,.0f} held with full buffers, {cache:,.0f} of cache"
        )
        outcome |= {"status": "failed", "reason": reason}
    return outcome | {"bound": said}
