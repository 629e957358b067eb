"""The child process: a job on standard input, progress and one outcome as JSON lines on standard output.

    python -m harness.run.worker < job

It imports one adapter, and may run in the Python of another environment. At the points that the job names, it reports
that it has got there, and waits for a line on standard input.
"""

import json
import os
import sys
import time
import traceback
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import asdict
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

import loaders
from harness.machine import host, process_usage
from harness.records import orders
from harness.run import utilisation
from harness.run.job import Converted, Job, Outcome, Rates, Window, message
from harness.run.measure import measure, touch
from loaders import tokens
from loaders.protocol import Incompatible

PROGRESS_S = 0.5  # between two messages of progress, and two samples of the memory in use, at least
ORDER_BATCHES = 512  # minibatches after which no further fetch of an order is recorded

Send = Callable[[dict[str, Any]], None]


def main() -> None:
    process_usage.die_with_parent()
    send = _private_output()
    job = Job.from_json(sys.stdin.readline())
    os.environ.update(job.environment)
    outcome = run(job, send)
    send({"outcome": message(outcome)})
    if outcome.status == "ok" and job.order_path:
        # The outcome has been sent: an error here costs the order alone.
        try:
            record_order(job, send)
        except Exception as error:
            traceback.print_exc()
            send({"order_trouble": f"its order could not be recorded: {type(error).__name__}: {error}"})


def run(job: Job, send: Send) -> Outcome:
    """Does the task of the job and returns its outcome. An exception of a library becomes the outcome's `reason`."""
    task = {"convert": convert, "ceiling": ceiling, "measure": measure_window}[job.task]
    try:
        return Outcome(status="ok", answer=task(job, send))
    except Incompatible as reason:
        return Outcome(status="skipped", reason=f"{job.loader} cannot honour this condition: {reason}")
    except Exception as error:
        traceback.print_exc()
        return Outcome(status="failed", reason=f"{type(error).__name__}: {error}", errno=_errno(error))


def convert(job: Job, send: Send) -> Converted:
    """Writes the loader's store into `job.store`, which is an empty folder."""
    start = time.perf_counter()

    def progress(cells: int) -> None:
        send({"phase": "convert", "rows": cells, "seconds": time.perf_counter() - start})

    progress(0)
    loaders.load(job.adapter).prepare(job.dataset, job.store, progress)
    return Converted(seconds=time.perf_counter() - start, peak_rss_bytes=process_usage.peak_rss_bytes())


def ceiling(job: Job, send: Send) -> Rates:
    """The rates of decoding alone and of copying alone, as the loader's adapter measures them on `job.cores` cores."""
    limit_cores(job.cores)
    return Rates(**loaders.load(job.adapter).ceiling(job.dataset, job.store, job.seconds))


def measure_window(job: Job, send: Send) -> Window:
    """Opens the loader and measures one window.

    Under a condition with accelerators it is the window of the most that the loader feeds.
    """
    condition = job.condition
    last_sent, held = 0.0, []

    def progress(phase: str, rows: int, seconds: float) -> None:
        nonlocal last_sent
        if time.monotonic() - last_sent >= PROGRESS_S:
            last_sent = time.monotonic()
            held.append(process_usage.held_bytes())
            send({"phase": phase, "rows": rows, "seconds": seconds})

    if condition.cores:
        limit_cores(condition.cores)
    send({"phase": "open", "rows": 0, "seconds": 0.0})
    adapter = loaders.load(job.adapter)
    import_s = import_libraries(adapter, tokens.IMPORTS if condition.output == "tokens" else ())
    imported_bytes = process_usage.held_bytes()
    wait("imported", job, send)
    start = time.perf_counter()
    loader = tokens.open_loader(adapter, job.dataset, job.store, condition, rows=False)
    open_s = time.perf_counter() - start
    try:
        wait("opened", job, send)
        sizes = {"epoch_rows": job.dataset.n_cells, "period_rows": loader.fetch_rows * max(1, condition.workers)}
        fed = {}
        if condition.accelerator_ms is None:
            trace = measure(
                loader,
                job.timing,
                time.perf_counter,
                **sizes,
                cache=condition.cache,
                consumer_s=condition.consumer_ms / 1e3,
                probe=lambda: totals(job),
                progress=progress,
            )
        else:
            result = utilisation.measure(
                loader,
                job.timing,
                time.perf_counter,
                **sizes,
                batch_size=condition.batch_size,
                step_s=condition.accelerator_ms / 1e3,
                compute=utilisation.COMPUTE[condition.consumer],
                usage=lambda: totals(job),
                progress=progress,
            )
            trace, fed = result.trace, {"accelerators": result.accelerators, "probes": result.probes}
        held.append(process_usage.held_bytes())
        peak = process_usage.peak_rss_bytes()
        fetches = trace.rows / loader.fetch_rows
    finally:
        loader.close()
    values = asdict(trace)
    first, last, start_s = values.pop("begun"), values.pop("ended"), values.pop("start_s")

    def within_window(counter: str) -> int | None:
        begun, ended = getattr(first, counter), getattr(last, counter)
        return None if begun is None or ended is None else ended - begun

    return Window(
        **values,
        **fed,
        edges_s=(start_s, start_s + trace.seconds),
        marks=dict(adapter.broken(condition)),
        import_s=import_s,
        open_s=open_s,
        fetches=fetches,
        cpu_s=last.cpu_s - first.cpu_s,
        disk_read_bytes=within_window("disk_read_bytes"),
        disk_reads=within_window("disk_reads"),
        requests=within_window("requests"),
        received_bytes=within_window("received_bytes"),
        peak_rss_bytes=peak,
        held_bytes=None if None in held else max(held),
        imported_bytes=imported_bytes,
    )


def totals(job: Job) -> "Probe":
    """The totals up to now."""
    return Probe(*process_usage.usage(), *served(job.counters_url))


class Probe(NamedTuple):
    """The totals at an edge of the window: `process_usage.Usage`, and what a bucket has served; None without one."""

    cpu_s: float
    disk_read_bytes: int | None
    disk_reads: int | None
    requests: int | None
    received_bytes: int | None


def served(counters_url: str | None) -> tuple[int | None, int | None]:
    """(the requests that a bucket has answered, the bytes of its answers); None, None without a bucket."""
    if counters_url is None:
        return None, None
    with urllib.request.urlopen(counters_url) as answer:
        counters = json.load(answer)
    return sum(counters["requests"].values()), counters["bytes"]


def wait(point: str, job: Job, send: Send) -> None:
    """Waits for the parent, if the job says so for this point."""
    if point in job.waits:
        send({"ready": point})
        sys.stdin.readline()


def import_libraries(adapter: Any, others: tuple[str, ...] = ()) -> float:
    """Imports all modules that the adapter needs, and others, before any clock runs. Returns the seconds it took."""
    start = time.perf_counter()
    with getattr(adapter, "importing", nullcontext)():
        for module in (*adapter.imports, *others):
            import_module(module)
    return time.perf_counter() - start


def limit_cores(cores: int) -> None:
    """Limits this process to `cores` of the cores that it may use. Raises Incompatible if those are fewer."""
    if cores > host.available_cores():
        raise Incompatible(f"it needs {cores} cores, and {host.available_cores()} are available")
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])


def record_order(job: Job, send: Send) -> None:
    """Opens the loader again, with row ids, and saves the row ids of the first minibatches of epoch 0."""
    send({"phase": "order", "rows": 0, "seconds": 0.0})
    loader = tokens.open_loader(loaders.load(job.adapter), job.dataset, job.store, job.condition, rows=True)
    try:
        ids = first_batches(loader.epoch(0), loader.fetch_rows, job.timing.order_s)
        orders.save(job.order_path, ids, loader.fetch_rows)
    finally:
        loader.close()


def first_batches(batches: Iterator[Any], fetch_rows: int, seconds: float) -> list[np.ndarray]:
    """The row ids of an epoch's first minibatches: an int64 array for each minibatch.

    Stops at the end of the fetch in which `seconds` have passed or the number of minibatches reaches ORDER_BATCHES, or
    at the end of the epoch. It does not stop within a fetch, because the minibatches of a fetch share its blocks: half
    a fetch would misrepresent the diversity.
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


def _private_output() -> Send:
    """Redirects standard output to standard error, so that libraries cannot write into the protocol.

    Returns the function that sends a message on the original standard output.
    """
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def send(message: dict[str, Any]) -> None:
        print(json.dumps(message), file=out, flush=True)

    return send


def _errno(error: BaseException | None) -> int | None:
    """The error number of the first OSError among the error and its causes; None if there is no OSError.

    It is 0 for an OSError without a number, as h5py raises.
    """
    while error is not None:
        if isinstance(error, OSError):
            return error.errno or 0
        error = error.__cause__ or error.__context__
    return None


if __name__ == "__main__":
    main()
