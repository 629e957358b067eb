"""Runs one worker process to its end, or kills it and the processes it started, and reports how it ended."""

import json
import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any, Protocol

from harness.machine import host
from harness.machine.cgroup import Group
from harness.machine.interpreter import interpreter
from harness.run.job import Job, Outcome

EXIT_S = 60.0  # for a worker to exit after it has closed its output
WATCH_S = 1.0  # between two looks at whether the memory limit has killed a process

Progress = Callable[[str, int, float], None]
"""Called with a worker's progress: (name of the phase, cells so far, seconds so far)."""


class Spawn(Protocol):
    """Gives a job to a worker and returns its outcome, as `spawn` does."""

    def __call__(
        self,
        job: Job,
        cores: int | None,
        timeout_s: float | None,
        progress: Progress,
        group: Group | None = None,
        begin: Callable[[str], None] | None = None,
    ) -> Outcome: ...


def spawn(
    job: Job,
    cores: int | None,
    timeout_s: float | None,
    progress: Progress,
    group: Group | None = None,
    begin: Callable[[str], None] | None = None,
) -> Outcome:
    """Gives the job to a fresh worker process and returns its outcome; "failed" or "timeout" if the worker sent none.

    An error after the worker sent its outcome does not change the status; it only becomes the `reason`. cores: the size
    of the thread pools of the libraries that the worker imports (None: all cores). timeout_s: seconds after which the
    worker is killed (None: never). group: the control group in which the worker starts.
    begin: called with each point at which the job says that the worker waits. The worker goes on when `begin` returns,
    and is killed if it raises OSError.
    """
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    outcome, trouble = None, None
    command = [interpreter(job.loader), "-m", "harness.run.worker"]
    with tempfile.TemporaryFile() as log:
        worker = subprocess.Popen(
            group.wrap(command) if group else command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            cwd=host.ROOT,
            env=os.environ | host.thread_budget(cores) | {"PYTHONWARNINGS": "ignore"},
            start_new_session=True,
        )
        try:
            with suppress(BrokenPipeError):  # the exit code of a dead worker gives the reason
                _send(worker, job.to_json(), last=not job.waits)
            for line in lines_until(worker.stdout, deadline, group.has_killed if group else None):
                message = parse(line)
                if message is None:
                    trouble = f"the worker wrote something else than its protocol: {line[:80]!r}"
                    break
                if "outcome" in message:
                    outcome = Outcome.of_message(job.task, message["outcome"])
                trouble = message.get("order_trouble", trouble)
                if "ready" in message:
                    try:
                        begin(message["ready"])
                    except OSError as error:
                        trouble = str(error)
                        break
                    with suppress(BrokenPipeError):
                        _send(worker, "go on", last=message["ready"] == job.waits[-1])
                if "phase" in message:
                    progress(message["phase"], message["rows"], message["seconds"])
            else:
                with suppress(subprocess.TimeoutExpired):  # its outcome was received
                    worker.wait(timeout=EXIT_S)
        except TimeoutError:
            trouble = f"no {'order' if outcome else 'result'} after {timeout_s:g} s"
            outcome = outcome or Outcome(status="timeout")
        except ChildProcessError:
            trouble = "a process that the worker had started was killed"
        finally:
            status = worker.poll()
            _kill_group(worker)
        log.seek(0)
        text = log.read().decode(errors="replace")
    if outcome is None:
        outcome = Outcome(status="failed")
        trouble = trouble or death(status, text)
    # The kernel may have killed a process that the worker started instead of the worker itself.
    killed = bool(group and outcome.status == "failed" and group.has_killed())
    reason = "it needs more memory than its limit" if killed else outcome.reason or trouble
    return replace(outcome, reason=reason, out_of_memory=killed, log=text)


def _send(worker: subprocess.Popen, line: str, last: bool) -> None:
    worker.stdin.write(line.encode() + b"\n")
    worker.stdin.flush()
    if last:
        worker.stdin.close()


def parse(line: bytes) -> dict[str, Any] | None:
    """The message in a line of the worker's output; None if the line is not of the worker's protocol."""
    try:
        message = json.loads(line)
    except ValueError:  # not JSON, or not even text
        return None
    known = {"outcome", "order_trouble", "phase", "ready"}
    return message if isinstance(message, dict) and known & set(message) else None


def lines_until(pipe: Any, deadline: float | None, has_killed: Callable[[], bool] | None = None) -> Iterator[bytes]:
    """Complete lines from a pipe as they arrive, until it is closed; TimeoutError if the deadline passes before.

    deadline: a value of time.monotonic() (None: no deadline). has_killed: whether a process that may still hold the
    pipe was killed; asked every WATCH_S while nothing arrives. Raises ChildProcessError then, since a worker can wait
    for ever for a process that it has started.
    """
    partial = b""
    while True:
        remaining = float("inf") if deadline is None else max(0.0, deadline - time.monotonic())
        wait = min(remaining, WATCH_S) if has_killed else remaining
        ready, _, _ = select.select([pipe], [], [], None if wait == float("inf") else wait)
        if not ready and wait == remaining:
            raise TimeoutError
        if not ready:
            if has_killed():
                raise ChildProcessError
            continue
        piece = os.read(pipe.fileno(), 1 << 16)
        if not piece:
            return
        *lines, partial = (partial + piece).split(b"\n")
        yield from lines


def death(status: int | None, log: str) -> str:
    """Why a worker ended without an outcome. status: its exit code, as of Popen.poll; log: its standard error."""
    last = next((line for line in reversed(log.splitlines()) if line.strip()), "it wrote no message")
    if status is None:
        return "the worker closed its output and did not end"
    if status == -signal.SIGKILL:
        return "the worker was killed (SIGKILL); if nobody did so by hand, the system ran out of memory"
    if status < 0:
        return f"the worker died of {signal.Signals(-status).name}: {last}"
    return f"the worker ended with exit code {status} and no result: {last}"


def _kill_group(worker: subprocess.Popen) -> None:
    with suppress(ProcessLookupError):  # it and its children may have exited
        os.killpg(worker.pid, signal.SIGKILL)
    worker.wait()
    worker.stdout.close()
    with suppress(BrokenPipeError):  # it may not have read its job
        worker.stdin.close()
