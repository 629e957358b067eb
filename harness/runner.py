"""The parent: which measurements are missing, in what order, and each one in a fresh worker."""

import json
import os
import random
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import loaders
from harness import host, pagecache, results
from harness.condition import Condition, Grid
from harness.damage import first_damage
from harness.dataset import Dataset
from harness.display import Display
from harness.prepare import store_files, store_path
from harness.results import Measurement

COLD_AT_MOST = 0.01  # share of a store that may be resident when a cold condition begins
RECORDED_PACKAGES = ("anndata", "h5py", "isal", "numba", "numpy", "scipy", "torch")


class Task(NamedTuple):
    condition: Condition
    repeat: int


def missing(grid: Grid, dataset: Dataset, done: Iterable[Measurement], repeats: int, retry: bool) -> list[Task]:
    """What is yet to be measured, in the order to measure it.

    Repeats are the outer loop and the conditions are shuffled inside it, so that drift falls on all alike. A row
    counts as done if it was taken of these very files with this timing; with `retry`, only if it is ok.
    """
    had = {
        (m.condition, m.repeat)
        for m in done
        if m.timing == grid.timing
        and m.provenance.get("dataset_fingerprint") == dataset.fingerprint
        and (m.status == "ok" or not retry)
    }
    tasks = []
    for repeat in range(repeats):
        conditions = list(grid.conditions)
        random.Random(f"{grid.name} {repeat}").shuffle(conditions)
        tasks += [Task(c, repeat) for c in conditions if (c, repeat) not in had]
    return tasks


def run(grid: Grid, dataset: Dataset, tasks: list[Task], path: Path, display: Display) -> None:
    """Measures the tasks one after another, appending each to `path` before the next begins."""
    for task in tasks:
        display.begin(task.condition, task.repeat, grid.timing)
        measurement = measure_one(grid, dataset, task, path.parent, display)
        results.append(path, measurement)
        display.end(measurement)


def measure_one(grid: Grid, dataset: Dataset, task: Task, folder: Path, display: Display) -> Measurement:
    """One row: evicts, then spawns, so that the worker maps nothing when the pages go; then hears it out."""
    condition = task.condition
    known = {
        "condition": condition,
        "timing": grid.timing,
        "repeat": task.repeat,
        "provenance": provenance(condition, dataset),
    }
    if reason := loaders.unavailable(condition.loader):
        return Measurement(**known, status="skipped", reason=reason)
    files = store_files(dataset, condition.loader)
    known["provenance"]["store_bytes"] = sum(file.stat().st_size for file in files)
    known["provenance"]["filesystem"] = host.filesystem(files[0])
    if condition.cache == "cold":
        display.phase("evict")
        method = known["provenance"]["evict_method"] = pagecache.evict(files)
        if method is None:
            return Measurement(**known, status="skipped", reason="this system offers no way to empty its page cache")
    else:
        display.phase("warm")
        pagecache.warm(files)
    known["resident_before"] = pagecache.resident(files)
    if condition.cache == "cold" and (known["resident_before"] or 0) > COLD_AT_MOST:
        reason = f"{known['resident_before']:.0%} of the store stayed in the page cache: some process has it mapped"
        return Measurement(**known, status="failed", reason=reason)
    order = None if task.repeat else folder / "orders" / f"{condition.key}-{dataset.fingerprint}.npz"
    job = {
        "adapter": loaders.NAMES[condition.loader],
        "dataset": dataset.to_dict(),
        "store": str(store_path(dataset, condition.loader).resolve()),
        "condition": condition.to_dict(),
        "timing": asdict(grid.timing),
        "order_path": str(order.resolve()) if order and not order.exists() else None,
    }
    outcome = spawn(job, condition.cores, grid.timing.timeout_s, display)
    if outcome.pop("unreadable", False) and (damage := first_damage(dataset)):
        outcome["reason"] = damage
    return Measurement(**known | outcome, resident_after=pagecache.resident(files))


def spawn(job: dict[str, Any], cores: int | None, timeout_s: float, display: Display) -> dict[str, Any]:
    """Runs one worker to its end, or kills it and all it started; returns the fields it measured."""
    threads = {name: str(cores or host.available_cores()) for name in host.THREAD_VARIABLES}
    with tempfile.TemporaryFile() as log:
        worker = subprocess.Popen(
            [sys.executable, "-m", "harness.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            cwd=host.ROOT,
            env=os.environ | threads | {"PYTHONWARNINGS": "ignore"},
            start_new_session=True,
        )
        try:
            worker.stdin.write(json.dumps(job).encode())
            worker.stdin.close()
            for line in lines_until(worker.stdout, time.monotonic() + timeout_s):
                message = json.loads(line)
                if "result" in message:
                    worker.wait(timeout=60)
                    return message["result"]
                display.phase(message["phase"], message["rows"], message["seconds"])
            status = worker.wait(timeout=60)
        except BrokenPipeError:
            status = worker.wait(timeout=60)
        except TimeoutError:
            return {"status": "timeout", "reason": f"no result after {timeout_s:g} s"}
        except (ValueError, KeyError, TypeError):
            return {
                "status": "failed",
                "reason": f"the worker wrote something else than its protocol: {line[:80]!r}",
            }
        except subprocess.TimeoutExpired:
            return {"status": "timeout", "reason": "the worker did not end within 60 s of its result"}
        finally:
            _kill_group(worker)
        log.seek(0)
        return {"status": "failed", "reason": death(status, log.read().decode(errors="replace"))}


def lines_until(pipe: Any, deadline: float) -> Iterator[bytes]:
    """Whole lines from a pipe as they come; TimeoutError once the deadline has passed."""
    rest = b""
    while True:
        ready, _, _ = select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            raise TimeoutError
        piece = os.read(pipe.fileno(), 1 << 16)
        if not piece:
            return
        *lines, rest = (rest + piece).split(b"\n")
        yield from lines


def death(status: int, log: str) -> str:
    """Why a worker ended without a result, in a sentence."""
    last = next((line for line in reversed(log.splitlines()) if line.strip()), "it said nothing")
    if status == -signal.SIGKILL:
        return "the worker was killed (SIGKILL); where nobody did so by hand, the system ran out of memory"
    if status < 0:
        return f"the worker died of {signal.Signals(-status).name}: {last}"
    return f"the worker ended with exit code {status} and no result: {last}"


def _kill_group(worker: subprocess.Popen) -> None:
    with suppress(ProcessLookupError):  # it and its children may have ended by themselves
        os.killpg(worker.pid, signal.SIGKILL)
    worker.wait()
    worker.stdout.close()


def provenance(condition: Condition, dataset: Dataset) -> dict[str, Any]:
    """Where, when and with what a measurement was made; no name, address or path of anybody."""
    commit, dirty = host.git_state()
    versions = host.packages()
    wanted = sorted({*RECORDED_PACKAGES, *loaders.get(condition.loader).imports})
    return {
        "utc": datetime.now(UTC).isoformat(timespec="seconds"),
        "git_commit": commit,
        "git_dirty": dirty,
        **host.facts(),
        "packages": {name: versions[name] for name in wanted if name in versions},
        "filesystem": None,
        "evict_method": None,
        "env": {name: os.environ[name] for name in host.THREAD_VARIABLES if name in os.environ},
        "dataset_fingerprint": dataset.fingerprint,
        "store_bytes": None,
    }
