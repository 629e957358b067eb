"""Runs one worker process to its end, or kills it and all it started, and says how it ended."""

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from harness import host

Told = Callable[[str, int, float], None]
"""What a worker says of its progress is passed to: (phase, cells, seconds)."""


def spawn(job: dict[str, Any], cores: int | None, timeout_s: float | None, told: Told) -> dict[str, Any]:
    """Gives the job to a fresh worker and returns its result; one that it did not give is "failed" or "timeout".

    cores sizes the thread pools of the libraries it will import; None: all there are.
    """
    threads = {name: str(cores or host.available_cores()) for name in host.THREAD_VARIABLES}
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
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
            for line in lines_until(worker.stdout, deadline):
                message = json.loads(line)
                if "result" in message:
                    worker.wait(timeout=60)
                    return message["result"]
                told(message["phase"], message["rows"], message["seconds"])
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
