"""Facts about the machine: its name, processor, memory, disks and file systems."""

import hashlib
import os
import platform
import re
import uuid
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parents[2]
MEMORY_FILESYSTEMS = ("tmpfs", "ramfs")
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
"""Environment variables that determine the size of the thread pools of numeric libraries when they are imported."""


def available_cores() -> int:
    """The number of cores that this process may run on; an affinity mask may exclude some cores of the machine."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def cpu_name() -> str:
    try:
        names = re.findall(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        names = []
    return names[0] if names else platform.processor() or platform.machine()


@cache
def machine() -> str:
    """A folder name for this machine: processor, available cores, memory in GiB, and four hex digits.

    The digits are from a hash of the machine's identity, so that different machines of the same kind have different
    names. The hash does not reveal who owns the machine.
    """
    cpu = re.sub(r"\(.*?\)|\bCPU\b|\bProcessor\b|@.*", " ", cpu_name())
    gib = round(psutil.virtual_memory().total / 2**30)
    identity = [platform.node(), uuid.getnode() if not uuid.getnode() >> 40 & 1 else "random"]
    with suppress(OSError):
        identity.append(Path("/etc/machine-id").read_text())
    digits = hashlib.sha256(repr(identity).encode()).hexdigest()[:4]
    return re.sub(r"[^a-z0-9]+", "-", f"{cpu} {available_cores()} cores {gib} gb {digits}".lower()).strip("-")


def filesystem(path: Path) -> str | None:
    """The type of the file system that holds `path`, such as "ext4"; None if the system does not list its mount."""
    resolved = path.resolve()
    mounts = [p for p in psutil.disk_partitions(all=True) if resolved.is_relative_to(p.mountpoint)]
    return max(mounts, key=lambda p: len(p.mountpoint)).fstype if mounts else None


def read_ahead_bytes(path: Path) -> int | None:
    """The read-ahead in bytes of the disk that holds `path`; None if the system does not report it."""
    device = os.stat(path).st_dev
    with suppress(OSError, ValueError):
        return int(Path(f"/sys/class/bdi/{os.major(device)}:{os.minor(device)}/read_ahead_kb").read_text()) * 1024
    return None


def facts() -> dict[str, Any]:
    """The description of the machine and its software that is part of the provenance of each measurement."""
    return {
        "python": platform.python_version(),
        "machine": machine(),
        "cpu": cpu_name(),
        "cores": available_cores(),
        "ram_bytes": psutil.virtual_memory().total,
        "kernel": platform.release(),
    }


def thread_budget(cores: int | None) -> dict[str, str]:
    """Environment variables that limit numeric libraries to `cores` threads (None: all available cores)."""
    return {name: str(cores or available_cores()) for name in THREAD_VARIABLES}
