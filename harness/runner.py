"""The parent: which measurements are missing, in what order, and each one in a fresh worker."""

import os
import random
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import loaders
from harness import host, pagecache, results
from harness.bounded import spawn_bounded
from harness.condition import Condition, Grid
from harness.damage import first_damage
from harness.dataset import Dataset
from harness.display import Display
from harness.errors import UserError
from harness.prepare import store_files, store_path
from harness.provenance import of_store, provenance
from harness.results import Measurement
from harness.spawn import new_job, spawn
from harness.together import spawn_together

COLD_AT_MOST = 0.01  # share of a store that may be resident when a cold condition begins


class Task(NamedTuple):
    condition: Condition
    repeat: int


def missing(grid: Grid, dataset: Dataset, done: Iterable[Measurement], repeats: int, retry: bool) -> list[Task]:
    """What is yet to be measured, in the order to measure it.

    Repeats are the outer loop and the conditions are shuffled inside it, so that drift falls on all alike. A row
    counts as done if it was taken of these very files with this timing; with `retry`, only if it is ok. A row of
    uncommitted code is made again once the code is committed, and one of a loader that was not installed once
    it is.
    """
    _, dirty = host.git_state()
    had = {
        (m.condition, m.repeat)
        for m in done
        if m.timing == grid.timing
        and m.provenance.get("dataset_fingerprint") == dataset.fingerprint
        and (m.status == "ok" or not retry)
        and (dirty or not m.provenance.get("git_dirty"))
        and not (loaders.NOT_INSTALLED in (m.reason or "") and not loaders.unavailable(m.condition.loader))
    }
    tasks = []
    for repeat in range(repeats):
        conditions = list(grid.conditions)
        random.Random(f"{grid.name} {repeat}").shuffle(conditions)
        tasks += [Task(c, repeat) for c in conditions if (c, repeat) not in had]
    return tasks


def run(
    grid: Grid, dataset: Dataset, tasks: list[Task], storeless: dict[str, str], path: Path, display: Display
) -> None:
    """Measures the tasks one after another, appending each to `path` before the next begins.

    storeless: the loaders whose store could not be made, and why. UserError where the data set is replaced meanwhile.
    """
    begun = stamps(dataset.paths)
    for task in tasks:
        if stamps(dataset.paths) != begun:
            raise UserError(
                f"The files of {dataset.name} were replaced while they were measured. Start again: the rows so far are "
                "of the old files, and are kept as such."
            )
        display.begin(task.condition, task.repeat, grid.timing)
        measurement = measure_one(grid, dataset, task, storeless, path.parent, display)
        results.append(path, measurement)
        display.end(measurement)


def measure_one(
    grid: Grid, dataset: Dataset, task: Task, storeless: dict[str, str], folder: Path, display: Display
) -> Measurement:
    """One row: evicts, then spawns, so that the worker maps nothing when the pages go; then hears it out."""
    condition = task.condition
    known = {
        "condition": condition,
        "timing": grid.timing,
        "repeat": task.repeat,
        "provenance": provenance(condition.loader, dataset, condition.cores),
    }
    if reason := loaders.unavailable(condition.loader):
        return Measurement(**known, status="skipped", reason=reason)
    if condition.loader in storeless:
        reason = f"its store could not be made: {storeless[condition.loader]}"
        return Measurement(**known, status="failed", reason=reason)
    files = store_files(dataset, condition.loader)
    begun = stamps(files)
    known["provenance"] |= of_store(files)
    if condition.cache != "warm":
        display.phase("evict")
        method = known["provenance"]["evict_method"] = pagecache.evict(files)
        if method is None:
            return Measurement(**known, status="skipped", reason="this system offers no way to empty its page cache")
    else:
        display.phase("warm")
        pagecache.warm(files)
    known["resident_before"] = pagecache.resident(files)
    if condition.cache != "warm" and (known["resident_before"] or 0) > COLD_AT_MOST:
        stayed = f"{known['resident_before']:.0%} of the store stayed in the page cache"
        in_memory = known["provenance"]["filesystem"] in host.MEMORY_FILESYSTEMS
        why = "it lies on a file system in memory; move it to a disk" if in_memory else "some process has it mapped"
        reason = f"{stayed}: {why}"
        return Measurement(**known, status="failed", reason=reason)
    order = results.order_path(folder, condition, dataset.fingerprint)
    # The first repeat records anew, so that it is of this very code; where the grid has its twin, that does so.
    by_twin = condition != condition.twin and condition.twin in grid.conditions
    has_order = (task.repeat and order.exists()) or by_twin or not grid.timing.order_s
    job = new_job(
        "measure",
        condition.loader,
        dataset,
        store_path(dataset, condition.loader),
        condition=condition.to_dict(),
        files=[str(file.resolve()) for file in files],
        timing=asdict(grid.timing),
        order_path=None if has_order else str(order.resolve()),
    )
    if condition.processes > 1:
        outcome = spawn_together(job, condition, grid.timing.timeout_s, display.phase)
    elif condition.cache == "bounded":
        outcome = spawn_bounded(job, condition, files, grid.timing.timeout_s, display.phase)
        known["provenance"]["bound"] = outcome.pop("bound")
    else:
        outcome = spawn(job, condition.cores, grid.timing.timeout_s, display.phase)
    log = outcome.pop("log")
    outcome.pop("edges_s", None)
    if outcome["status"] in ("failed", "timeout") and log:
        (folder / "logs").mkdir(exist_ok=True)
        (folder / "logs" / f"{condition.key}-{task.repeat}.log").write_text(log)
    if outcome.pop("errno", None) is not None and (damage := first_damage(dataset)):
        outcome["reason"] = damage
    if stamps(files) != begun:
        return Measurement(**known, status="failed", reason="its files were replaced while they were read; start again")
    return Measurement(**known | outcome, resident_after=pagecache.resident(files))


def stamps(files: Sequence[Path]) -> list[tuple[int, ...] | None]:
    """What changes with a file that is replaced or written to; None for one that is gone."""
    return [(s.st_ino, s.st_size, s.st_mtime_ns) if (s := _stat(file)) else None for file in files]


def _stat(file: Path) -> os.stat_result | None:
    try:
        return file.stat()
    except FileNotFoundError:
        return None
