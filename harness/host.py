"""The machine and the process: facts for provenance, thread budgets, processor time, memory and bytes read."""

import hashlib
import os
import platform
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import psutil

ROOT = Path(__file__).resolve().parent.parent
MEMORY_FILESYSTEMS = ("tmpfs", "ramfs")
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
"""What the numeric libraries read, when they are imported, for the size of their thread pools."""


def available_cores() -> int:
    """Cores this process may run on: fewer than the machine's under an affinity mask."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Usage(NamedTuple):
    """Of this process, its living descendants and the ended ones it has waited for; None where not measurable."""

    cpu_s: float
    disk_read_bytes: int | None


def usage() -> Usage:
    ended = os.times()
    cpu_s = time.process_time() + ended.children_user + ended.children_system  # os.times counts in hundredths
    read = _read_bytes("self")
    for child in psutil.Process().children(recursive=True):
        try:
            times = child.cpu_times()
            cpu_s += times.user + times.system
        except psutil.NoSuchProcess:
            continue
        more = _read_bytes(str(child.pid))
        read = None if read is None or more is None else read + more
    return Usage(cpu_s, read)


def _read_bytes(pid: str) -> int | None:
    """Bytes fetched from storage on behalf of a process (its waited-for children included)."""
    try:
        text = Path(f"/proc/{pid}/io").read_text()
    except OSError:  # not Linux, not ours, or ended a moment ago
        return None
    return int(re.search(r"^read_bytes: (\d+)", text, re.MULTILINE)[1])


def peak_rss_bytes() -> int | None:
    """The process's own high-water mark and, of living descendants, what they hold now (shared pages shared out)."""
    try:
        status = Path("/proc/self/status").read_text()
        peak = int(re.search(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE)[1]) * 1024
    except OSError:
        return None
    for child in psutil.Process().children(recursive=True):
        try:
            peak += child.memory_full_info().pss
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return peak


def held_bytes(store: Sequence[str]) -> int:
    """Memory that this process and its living descendants hold, shared pages shared out, but for pages of the store.

    store: the absolute paths of its files, pages of which can be dropped where they are mapped.
    """
    store, held = set(store), 0
    for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            held += sum(m.pss for m in process.memory_maps(grouped=False) if m.path not in store)
    return held


def die_with_parent() -> None:
    """Asks Linux to kill this process when its parent ends, however it ends."""
    if sys.platform == "linux":
        import ctypes

        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


@cache
def cpu_name() -> str:
    try:
        names = re.findall(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        names = []
    return names[0] if names else platform.processor() or platform.machine()


@cache
def machine() -> str:
    """A folder name for this machine: processor, cores and memory, and four digits that tell it from its like.

    The digits are of a hash, so that a checkout that holds another machine's results is not taken to have been
    measured here, and nothing names the owner.
    """
    cpu = re.sub(r"\(.*?\)|\bCPU\b|\bProcessor\b|@.*", " ", cpu_name())
    gib = round(psutil.virtual_memory().total / 2**30)
    identity = [platform.node(), uuid.getnode() if not uuid.getnode() >> 40 & 1 else "random"]
    with suppress(OSError):
        identity.append(Path("/etc/machine-id").read_text())
    digits = hashlib.sha256(repr(identity).encode()).hexdigest()[:4]
    return re.sub(r"[^a-z0-9]+", "-", f"{cpu} {available_cores()} cores {gib} gb {digits}".lower()).strip("-")


def git_state() -> tuple[str | None, bool | None]:
    """(commit, whether the code differs from it): tracked files but results/, which a run writes, and new code."""

    def git(*arguments: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=True, timeout=30
            )
        except (OSError, subprocess.SubprocessError):  # no git, or not a checkout
            return None
        return done.stdout.strip()

    commit = git("rev-parse", "HEAD")
    if commit is None:
        return None, None
    changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!results")
    return commit, bool(changed or git("status", "--porcelain", "--", "harness", "loaders", "analysis"))


def filesystem(path: Path) -> str | None:
    """The type of the file system that holds `path`, as /proc/mounts names it."""
    where = path.resolve()
    mounts = [p for p in psutil.disk_partitions(all=True) if where.is_relative_to(p.mountpoint)]
    return max(mounts, key=lambda p: len(p.mountpoint)).fstype if mounts else None


def read_ahead_bytes(path: Path) -> int | None:
    """How far the system reads on behind a read of the disk that holds `path`; None where it does not say."""
    device = os.stat(path).st_dev
    with suppress(OSError, ValueError):
        return int(Path(f"/sys/class/bdi/{os.major(device)}:{os.minor(device)}/read_ahead_kb").read_text()) * 1024
    return None


def facts() -> dict[str, Any]:
    """The machine's part of a measurement's provenance."""
    return {
        "python": platform.python_version(),
        "machine": machine(),
        "cpu": cpu_name(),
        "cores": available_cores(),
        "ram_bytes": psutil.virtual_memory().total,
        "kernel": platform.release(),
    }
