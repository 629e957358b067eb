"""The parent process: selects and orders the missing measurements, and makes each in a fresh worker."""

import os
import random
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import psutil

import loaders
from harness.bucket.process import BUCKET, environment, running
from harness.bucket.server import COUNTERS
from harness.condition import Condition, Timing
from harness.data.damage import first_damage
from harness.data.dataset import Dataset
from harness.errors import UserError
from harness.grids import Grid
from harness.machine import git, host, pagecache
from harness.records import jsonl, orders
from harness.records.measurement import COLD_AT_MOST, WARM_AT_LEAST, Measurement
from harness.run.concurrent import spawn_together
from harness.run.job import Job
from harness.run.limits import UnavailableError, limits
from harness.run.process import Spawn, spawn
from harness.run.provenance import of_store, provenance
from harness.run.stores import store_files, store_path
from loaders.protocol import UNCONVERTED


class Task(NamedTuple):
    """One measurement to make. repeat: its number, from 0. again: whether it is the second of the repeat's A/A pair."""

    condition: Condition
    repeat: int
    again: bool = False


class Display(Protocol):
    """Shows the progress; see `harness.commands.display`."""

    def begin(self, condition: Condition, repeat: int, timing: Timing) -> None: ...

    def phase(self, phase: str, rows: int = 0, seconds: float = 0.0) -> None: ...

    def end(self, measurement: Measurement) -> None: ...


def missing(grid: Grid, dataset: Dataset, done: Iterable[Measurement], repeats: int, retry: bool) -> list[Task]:
    """The missing measurements, in the order in which to make them.

    Repeats are the outer loop, and the conditions are shuffled inside it, so that a drift of the machine's speed
    affects all conditions equally. One condition of the grid is measured twice in each repeat, the A/A pair: their
    ratio shows what chance alone does. A measurement is not made again if `done` has it with the grid's timing, the
    fingerprint of this data set and the present code (see `git.code`); with `retry`, only if its status is "ok". What
    was measured with uncommitted code is measured again once the code is committed. What was skipped because a loader
    was not installed is measured once it is installed.

    repeats: the number of measurements per condition.
    """
    _, dirty = git.state()
    code = git.code()
    completed = {
        (m.condition, m.repeat, bool(m.again))
        for m in done
        if m.timing == grid.timing
        and m.provenance.get("code") == code
        and m.provenance.get("dataset_fingerprint") == dataset.fingerprint
        and (m.status == "ok" or not retry)
        and (dirty or not m.provenance.get("git_dirty"))
        and not (loaders.NOT_INSTALLED in (m.reason or "") and not loaders.unavailable(m.condition.loader))
    }
    tasks = []
    for repeat in range(repeats):
        of_repeat = [Task(c, repeat) for c in grid.conditions] + [Task(grid.pair, repeat, again=True)]
        random.Random(f"{grid.name} {repeat}").shuffle(of_repeat)
        tasks += [task for task in of_repeat if task not in completed]
    return tasks


def run(
    grid: Grid,
    dataset: Dataset,
    tasks: Sequence[Task],
    storeless: dict[str, str],
    path: Path,
    display: Display,
    spawn: Spawn = spawn,
) -> None:
    """Makes the measurements one after another, and appends each to the file `path` before the next begins.

    storeless: the reason for each loader whose store could not be made. spawn: gives a job to a worker. Raises
    UserError if files of the data set were replaced since this function was called; checked before each measurement.
    """
    before = stamps(dataset.paths)
    for task in tasks:
        if stamps(dataset.paths) != before:
            raise UserError(
                f"The files of {dataset.name} were replaced while they were measured. Start again; the rows so far are "
                "of the old files, and are kept."
            )
        display.begin(task.condition, task.repeat, grid.timing)
        measurement = measure_one(grid, dataset, task, storeless, path.parent, display, spawn)
        jsonl.append(path, measurement)
        display.end(measurement)


def measure_one(
    grid: Grid,
    dataset: Dataset,
    task: Task,
    storeless: dict[str, str],
    folder: Path,
    display: Display,
    spawn: Spawn = spawn,
) -> Measurement:
    """Makes one measurement; a condition that cannot be measured gives a Measurement with the reason.

    The page cache is emptied (or, for "warm", filled) before the worker starts, because pages that a process has mapped
    cannot be evicted. folder: where logs and recorded orders are written. storeless, spawn: as for `run`.
    """
    condition = task.condition
    row: dict[str, Any] = {
        "condition": condition,
        "timing": grid.timing,
        "repeat": task.repeat,
        "again": task.again,
        "provenance": provenance(condition.loader, dataset, condition.cores),
    }
    if reason := loaders.unavailable(condition.loader):
        return Measurement(**row, status="skipped", reason=reason)
    if condition.ttfb_ms is not None and not getattr(loaders.get(condition.loader), "objects", False):
        reason = f"{condition.loader} cannot honour this condition: it reads files, not objects in a bucket"
        return Measurement(**row, status="skipped", reason=reason)
    if condition.loader in storeless:
        reason = f"its store could not be made: {storeless[condition.loader]}"
        return Measurement(**row, status="failed", reason=reason)
    if dataset.is_remote:
        if reason := refused_of_objects(condition):
            return Measurement(**row, status="skipped", reason=reason)
        files: list[Path] = []
    else:
        files = store_files(dataset, condition.loader)
        row["provenance"] |= of_store(files)
        if refusal := prepare_cache(condition, files, row, display):
            return Measurement(**row, **refusal)
    before = stamps(files)
    job = Job(
        task="measure",
        loader=condition.loader,
        adapter=loaders.NAMES[condition.loader],
        dataset=dataset,
        store=store_path(dataset, condition.loader).resolve(),
        condition=condition,
        timing=grid.timing,
        order_path=order_to_record(grid, dataset, task, folder),
    )
    try:
        with limits(condition, files) as limited, bucket(condition, dataset, files) as (facts, reached):
            row["provenance"]["limits"] = limited.facts | facts

            def begin(point: str) -> None:
                if point == "imported":
                    limited.limit_disk()

            job = replace(job, waits=("imported",) if condition.disk else (), **reached)
            arguments = (grid.timing.timeout_s, display.phase, limited.group, begin)
            if condition.processes > 1:
                outcome = spawn_together(job, *arguments, spawn)
            else:
                outcome = spawn(job, condition.cores, *arguments)
    except UnavailableError as reason:
        return Measurement(**row, status="skipped", reason=str(reason))
    if outcome.status in ("failed", "timeout") and outcome.log:
        (folder / "logs").mkdir(exist_ok=True)
        (folder / "logs" / f"{condition.key}-{task.repeat}.log").write_text(outcome.log)
    reason = outcome.reason
    if outcome.errno is not None and files:
        reason = first_damage(dataset) or reason
    if stamps(files) != before:
        return Measurement(**row, status="failed", reason="its files were replaced while they were read; start again")
    window = asdict(outcome.answer) if outcome.answer else {}
    window.pop("edges_s", None)
    resident = pagecache.resident(files) if files else None
    return Measurement(**row, **window, status=outcome.status, reason=reason, resident_after=resident)


def refused_of_objects(condition: Condition) -> str | None:
    """Why a data set of which there are objects alone cannot be measured under a condition; None if it can."""
    adapter = loaders.get(condition.loader)
    if not getattr(adapter, "objects", False) or adapter.store != UNCONVERTED:
        return f"{condition.loader} cannot honour this condition: it reads files, or a store that is made of files"
    if condition.where or condition.cache != "first":
        return "the disk, the link and the page cache of a bucket elsewhere cannot be chosen"
    return None


def prepare_cache(
    condition: Condition, files: Sequence[Path], row: dict[str, Any], display: Display
) -> dict[str, str] | None:
    """Empties or fills the page cache as the condition says, and notes the result in `row`.

    Returns the status and the reason of a measurement that cannot be made; None if it can.
    """
    size = sum(file.stat().st_size for file in set(files))
    if condition.cache == "warm" and size > (free := psutil.virtual_memory().available):
        reason = f"its store of {size / 1e9:,.1f} GB is larger than the {free / 1e9:,.1f} GB of memory that are free"
        return {"status": "skipped", "reason": reason}
    is_served = condition.ttfb_ms is not None  # a bucket serves from memory
    if condition.cache == "warm" or is_served:
        display.phase("read into memory")
        resident = pagecache.warm(files)
    else:
        display.phase("evict")
        method = row["provenance"]["evict_method"] = pagecache.evict(files)
        if method is None:
            return {"status": "skipped", "reason": "the page cache cannot be emptied on this system"}
        resident = pagecache.resident(files)
    row["resident_before"] = resident
    if condition.cache == "warm" and resident is not None and resident < WARM_AT_LEAST:
        reason = (
            f"only {resident:.0%} of its store of {size / 1e9:,.1f} GB stayed in memory, though it was read "
            f"{pagecache.READINGS} times: other processes use the memory, or there is too little of it"
        )
        return {"status": "skipped", "reason": reason}
    if condition.cache != "warm" and not is_served and (resident or 0) > COLD_AT_MOST:
        in_memory = row["provenance"]["filesystem"] in host.MEMORY_FILESYSTEMS
        cause = "it is on a file system in memory; move it to a disk" if in_memory else "some process has it mapped"
        return {"status": "failed", "reason": f"{resident:.0%} of the store stayed in the page cache: {cause}"}
    return None


@contextmanager
def bucket(
    condition: Condition, dataset: Dataset, files: Sequence[Path]
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Serves the store and the data set as a bucket, if the condition has one.

    Yields (facts for the provenance, the fields of the Job by which the worker reaches it). Raises UnavailableError.
    """
    if condition.ttfb_ms is None:
        yield {}, {}
        return
    folder = Path(os.path.commonpath([path.resolve().parent for path in (*files, *dataset.paths)]))
    rates = {"link_mbps": condition.link_mbps, "connection_mbps": condition.connection_mbps}
    with tempfile.TemporaryDirectory() as cache, ExitStack() as stack:
        try:
            server = stack.enter_context(running(folder, ttfb_ms=condition.ttfb_ms, **rates))
        except OSError as error:
            raise UnavailableError(f"the bucket could not be served: {error}") from error
        # Every loader opens the bucket for the first time: nothing that an earlier one kept helps it.
        reached = {
            "dataset": replace(dataset, bucket=f"s3://{BUCKET}", served=server.folder),
            "environment": environment(server.endpoint) | {"XDG_CACHE_HOME": cache},
            "counters_url": server.endpoint + COUNTERS,
        }
        yield {"bucket": server.facts}, reached


def order_to_record(grid: Grid, dataset: Dataset, task: Task, folder: Path) -> Path | None:
    """The file in which this measurement records the order of its cells; None if it does not record the order.

    The first repeat replaces an existing file, so that the recorded order is that of the current code; later repeats
    record only if there is no file. Of the grid's conditions with the same order, one records it: the first, or the
    first with CSR output, which is faster, and without a limited disk or link.
    """
    condition = task.condition
    path = orders.path(folder, condition, dataset.fingerprint)
    same = [c for c in grid.conditions if c.order_key == condition.order_key]
    recorder = min(same, key=lambda c: (c.where != "", c.output != "csr"))
    if (task.repeat and path.exists()) or condition != recorder or task.again or not grid.timing.order_s:
        return None
    return path.resolve()


def stamps(files: Sequence[Path]) -> list[tuple[int, ...] | None]:
    """(inode, size, modification time) of each file, to notice changes; None for a file that does not exist."""
    return [(s.st_ino, s.st_size, s.st_mtime_ns) if (s := _stat(file)) else None for file in files]


def _stat(file: Path) -> os.stat_result | None:
    try:
        return file.stat()
    except FileNotFoundError:
        return None
