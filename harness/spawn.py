"""Runs one worker process to its end, or kills it and all it started, and says how it ended."""

import json
import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import loaders
from harness import host
from harness.cgroup import Group
from harness.dataset import Dataset
from harness.interpreter import interpreter

EXIT_S = 60.0  # for a worker to end by itself once it has closed its output

Told = Callable[[str, int, float], None]
"""What a worker says of its progress is passed to: (phase, cells, seconds)."""


class Pause(NamedTuple):
    """For a worker that waits before it measures. begin: called, once it is ready, with the bytes that it holds; the
    worker goes on when that returns, and is ended by an OSError of it. group: which the worker is put in."""

    begin: Callable[[int], None]
    group: Group | None = None


def new_job(task: str, loader: str, dataset: Dataset, store: Path, **more: Any) -> dict[str, Any]:
    """What a worker is told, as JSON can hold it. task: of those in `harness.worker`; more: what the task asks for.

    The adapter goes by its module, so that a loader works that only this process has registered.
    """
    named = {"task": task, "loader": loader, "adapter": loaders.NAMES[loader]}
    return named | {"dataset": dataset.to_dict(), "store": str(store.resolve())} | more


def spawn(
    job: dict[str, Any], cores: int | None, timeout_s: float | None, told: Told, pause: Pause | None = None
) -> dict[str, Any]:
    """Gives the job to a fresh worker and returns its result; one that it did not give is "failed" or "timeout".

    What happens after the result has come cannot undo it, and becomes its `reason`. `log` is what the worker
    wrote to standard error. A worker that its bound has killed is "out of memory", without a reason. cores sizes the
    thread pools of the libraries it will import; None: all there are.
    """
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    result, trouble = None, None
    with tempfile.TemporaryFile() as log:
        worker = subprocess.Popen(
            [interpreter(job["loader"]), "-m", "harness.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            cwd=host.ROOT,
            env=os.environ | thread_budget(cores) | {"PYTHONWARNINGS": "ignore"},
            start_new_session=True,
        )
        try:
            with suppress(BrokenPipeError):  # a worker that is gone already says so by its exit code
                if pause and pause.group:
                    pause.group.add(worker.pid)
                _tell(worker, json.dumps(job), last=pause is None)
            for line in lines_until(worker.stdout, deadline):
                message = parse(line)
                if message is None:
                    trouble = f"the worker wrote something else than its protocol: {line[:80]!r}"
                    break
                result = message.get("result", result)
                trouble = message.get("order_trouble", trouble)
                if "ready" in message:
                    try:
                        pause.begin(message["ready"])
                    except OSError as error:
                        trouble = str(error)
                        break
                    with suppress(BrokenPipeError):
                        _tell(worker, "go on", last=True)
                if "phase" in message:
                    told(message["phase"], message["rows"], message["seconds"])
            else:
                with suppress(subprocess.TimeoutExpired):  # what it had to say has been said
                    worker.wait(timeout=EXIT_S)
        except TimeoutError:
            trouble = f"no {'order' if result else 'result'} after {timeout_s:g} s"
            result = result or {"status": "timeout"}
        finally:
            status = worker.poll()
            _kill_group(worker)
        log.seek(0)
        text = log.read().decode(errors="replace")
    if result is None:
        result = {"status": "failed"}
        trouble = trouble or death(status, text)
    if (
        pause and pause.group and result["status"] == "failed" and pause.group.has_killed()
    ):  # it, or a process that it had started
        result, trouble = {"status": "out of memory"}, None
    return {"reason": trouble} | result | {"log": text}


def _tell(worker: subprocess.Popen, line: str, last: bool) -> None:
    worker.stdin.write(line.encode() + b"\n")
    worker.stdin.flush()
    if last:
        worker.stdin.close()


def thread_budget(cores: int | None) -> dict[str, str]:
    """The environment that holds numeric libraries to so many threads."""
    return {name: str(cores or host.available_cores()) for name in host.THREAD_VARIABLES}


def parse(line: bytes) -> dict[str, Any] | None:
    """A message of the worker's protocol; None for anything else."""
    try:
        message = json.loads(line)
    except ValueError:  # not JSON, or not even text
        return None
    known = {"result", "order_trouble", "phase", "ready"}
    return message if isinstance(message, dict) and known & set(message) else None


def lines_until(pipe: Any, deadline: float | None) -> Iterator[bytes]:
    """Whole lines from a pipe as they come; TimeoutError once the deadline has passed."""
    rest = b""
    while True:
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        ready, _, _ = select.select([pipe], [], [], left)
        if not ready:
            raise TimeoutError
        piece = os.read(pipe.fileno(), 1 << 16)
        if not piece:
            return
        *lines, rest = (rest + piece).split(b"\n")
        yield from lines


def death(status: int | None, log: str) -> str:
    """Why a worker ended without a result, in a sentence."""
    last = next((line for line in reversed(log.splitlines()) if line.strip()), "it said nothing")
    if status is None:
        return "the worker closed its output and did not end"
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
    with suppress(BrokenPipeError):  # what it was told and did not read
        worker.stdin.close()
