"""The child: a job as JSON on standard input, progress and one result as JSON lines on standard output.

    python -m harness.worker < job

It imports one adapter, and may be another environment's Python. Where memory is to be bounded, or others are to be
measured at the same time, it says that it is ready and what it holds, and goes on when it is told so.
"""

import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

import loaders
from harness import host
from harness.condition import Condition, Timing
from harness.dataset import Dataset
from harness.measure import measure, touch
from loaders.protocol import Incompatible

PROGRESS_S = 0.5
ORDER_BATCHES = 512
LOOK_S = 0.1  # between two looks at what is held


def main() -> None:
    host.die_with_parent()
    say = _private_output()
    job = json.loads(sys.stdin.readline())
    try:
        result = {"convert": convert, "ceiling": ceiling, "weigh": weigh, "measure": run}[job["task"]](job, say)
    except Incompatible as reason:
        result = {"status": "skipped", "reason": f"{job['loader']} cannot honour this condition: {reason}"}
    except Exception as error:
        traceback.print_exc()
        result = {
            "status": "failed",
            "reason": f"{type(error).__name__}: {error}",
            "errno": _errno(error),
        }
    say({"result": result})
    if result["status"] == "ok" and job.get("order_path"):
        # After the result has been said: trouble here costs the order alone.
        try:
            record_order(job, say)
        except Exception as error:
            traceback.print_exc()
            say({"order_trouble": f"its order could not be recorded: {type(error).__name__}: {error}"})


def convert(job: dict[str, Any], say: Callable[[dict], None]) -> dict[str, Any]:
    """Writes the loader's store into the empty folder `store`; returns a Conversion's own fields."""
    dataset = Dataset.from_dict(job["dataset"])
    start = time.perf_counter()

    def progress(cells: int) -> None:
        say({"phase": "convert", "rows": cells, "seconds": time.perf_counter() - start})

    progress(0)
    loaders.load(job["adapter"]).prepare(dataset, Path(job["store"]), progress)
    return {"status": "ok", "seconds": time.perf_counter() - start, "peak_rss_bytes": host.peak_rss_bytes()}


def ceiling(job: dict[str, Any], say: Callable[[dict], None]) -> dict[str, Any]:
    """What decoding and copying alone would allow, by the loader's own account of its store."""
    limit_cores(job["cores"])
    dataset = Dataset.from_dict(job["dataset"])
    return {"status": "ok", **loaders.load(job["adapter"]).ceiling(dataset, Path(job["store"]), job["seconds"])}


def run(job: dict[str, Any], say: Callable[[dict], None]) -> dict[str, Any]:
    """Opens the loader and measures it; returns a Measurement's own fields."""
    condition, timing = Condition.from_dict(job["condition"]), Timing(**job["timing"])
    said = 0.0

    def progress(phase: str, rows: int, seconds: float) -> None:
        nonlocal said
        if time.monotonic() - said >= PROGRESS_S:
            said = time.monotonic()
            say({"phase": phase, "rows": rows, "seconds": seconds})

    loader, open_s = open_loader(job, condition, say)
    period_rows = loader.fetch_rows * max(1, condition.workers)
    try:
        if condition.cache == "bounded":
            say({"phase": "fill", "rows": 0, "seconds": 0.0})
            # Until a third buffer is begun: by then it holds what it goes on holding.
            say({"ready": held_at_most(loader, job["files"], lambda rows, seconds: rows > 2 * period_rows)})
            sys.stdin.readline()
        elif condition.processes > 1:
            say({"ready": host.held_bytes(job["files"])})
            sys.stdin.readline()
        trace = measure(
            loader,
            timing,
            time.perf_counter,
            epoch_rows=Dataset.from_dict(job["dataset"]).n_cells,
            period_rows=period_rows,
            first_epoch=int(condition.cache == "bounded"),
            consumer_s=condition.consumer_ms / 1e3,
            probe=host.usage,
            progress=progress,
        )
        peak = host.peak_rss_bytes()
        fetches = trace.rows / loader.fetch_rows
    finally:
        loader.close()
    values = asdict(trace)
    begun, ended, start_s = values.pop("begun"), values.pop("ended"), values.pop("start_s")
    read = (
        None
        if ended.disk_read_bytes is None or begun.disk_read_bytes is None
        else (ended.disk_read_bytes - begun.disk_read_bytes)
    )
    return {
        **values,
        "edges_s": (start_s, start_s + trace.seconds),
        "status": "ok",
        "marks": dict(loader.broken(condition)),
        "open_s": open_s,
        "fetches": fetches,
        "cpu_s": ended.cpu_s - begun.cpu_s,
        "disk_read_bytes": read,
        "peak_rss_bytes": peak,
    }


def weigh(job: dict[str, Any], say: Callable[[dict], None]) -> dict[str, Any]:
    """What the loader holds at most in as much time as it would be measured for, with nothing to bound it."""
    timing = Timing(**job["timing"])
    loader, _ = open_loader(job, Condition.from_dict(job["condition"]), say)
    try:
        held = held_at_most(loader, job["files"], lambda rows, seconds: seconds > timing.warmup_s + timing.measure_s)
    finally:
        loader.close()
    return {"status": "ok", "held_bytes": held}


def open_loader(job: dict[str, Any], condition: Condition, say: Callable[[dict], None]) -> tuple[Any, float]:
    """(the loader without row ids, on no more cores than the condition says; the seconds that opening took)."""
    if condition.cores:
        limit_cores(condition.cores)
    say({"phase": "open", "rows": 0, "seconds": 0.0})
    adapter = loaders.load(job["adapter"])
    start = time.perf_counter()
    loader = adapter.open(Dataset.from_dict(job["dataset"]), Path(job["store"]), condition, rows=False)
    return loader, time.perf_counter() - start


def limit_cores(cores: int) -> None:
    """Leaves this process so many of the cores it may run on; Incompatible where there are fewer."""
    if cores > host.available_cores():
        raise Incompatible(f"it asks for {cores} cores, and there are {host.available_cores()}")
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])


def held_at_most(loader: Any, files: list[str], enough: Callable[[int, float], bool]) -> int:
    """Bytes that this process and those it started held at most while the first epoch was read until
    `enough(rows, seconds)`; mapped pages of the store's files are left out."""
    start = looked = time.monotonic()
    most, rows = 0, 0
    for batch in loader.epoch(0):
        rows += touch(batch)
        now = time.monotonic()
        if now - looked > LOOK_S:
            most, looked = max(most, host.held_bytes(files)), now
        if enough(rows, now - start):
            break
    return max(most, host.held_bytes(files))


def record_order(job: dict[str, Any], say: Callable[[dict], None]) -> None:
    """Opens the loader anew, with row ids, and saves those of an epoch's first batches."""
    condition = Condition.from_dict(job["condition"])
    say({"phase": "order", "rows": 0, "seconds": 0.0})
    adapter = loaders.load(job["adapter"])
    loader = adapter.open(Dataset.from_dict(job["dataset"]), Path(job["store"]), condition, rows=True)
    try:
        ids = first_batches(loader.epoch(0), loader.fetch_rows, job["timing"]["order_s"])
        save_order(Path(job["order_path"]), ids, loader.fetch_rows)
    finally:
        loader.close()


def first_batches(batches: Iterator[Any], fetch_rows: int, seconds: float) -> list[np.ndarray]:
    """Row ids of an epoch's first batches: the whole fetches that begin in the time given, or in 512 batches.

    Batches of one fetch are drawn from the same few blocks; half of a fetch would say less than it seems to.
    """
    stop = time.monotonic() + seconds
    ids, rows = [], 0
    for batch in batches:
        touch(batch)
        ids.append(np.asarray(batch.rows, np.int64))
        rows += len(ids[-1])
        whole = rows % fetch_rows == 0
        if whole and (len(ids) >= ORDER_BATCHES or time.monotonic() > stop):
            break
    return ids


def save_order(path: Path, ids: list[np.ndarray], fetch_rows: int) -> None:
    """Writes `rows` (all ids one after another), `sizes` (of the batches) and `fetch_rows`; whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_suffix(".partial.npz")
    sizes = np.array([len(rows) for rows in ids])
    np.savez_compressed(aside, rows=np.concatenate(ids), sizes=sizes, fetch_rows=fetch_rows)
    aside.rename(path)


def _private_output() -> Callable[[dict], None]:
    """Keeps standard output for the protocol, and sends what a library prints there to standard error."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(message: dict) -> None:
        print(json.dumps(message), file=out, flush=True)

    return say


def _errno(error: BaseException | None) -> int | None:
    """The system's number for what went wrong, of the error or of one that caused it; 0 where HDF5 gave none."""
    while error is not None:
        if isinstance(error, OSError):
            return error.errno or 0
        error = error.__cause__ or error.__context__
    return None


if __name__ == "__main__":
    main()
