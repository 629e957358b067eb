"""The resources that this process and its descendants use: CPU time, bytes read from disk, and memory."""

import os
import re
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil

from harness.machine import cgroup


class Usage(NamedTuple):
    """Totals of this process, its living descendants, and its children that have ended and were waited for.

    cpu_s: CPU time in seconds. disk_read_bytes: bytes read from storage; None if they cannot be measured. disk_reads:
    the number of reads from disks, of all workers together that share limits; None if they are not counted.
    """

    cpu_s: float
    disk_read_bytes: int | None
    disk_reads: int | None


def usage() -> Usage:
    ended = os.times()
    # process_time, because os.times has a resolution of 1/100 s
    cpu_s = time.process_time() + ended.children_user + ended.children_system
    read = _read_bytes("self")
    for child in psutil.Process().children(recursive=True):
        try:
            times = child.cpu_times()
            cpu_s += times.user + times.system
        except psutil.NoSuchProcess:
            continue
        child_read = _read_bytes(str(child.pid))
        read = None if read is None or child_read is None else read + child_read
    return Usage(cpu_s, read, cgroup.own_reads())


def _read_bytes(pid: str) -> int | None:
    """Bytes that a process, and its children that have ended and were waited for, have read from storage.

    None if they cannot be measured. pid: a process id, or "self".
    """
    try:
        text = Path(f"/proc/{pid}/io").read_text()
    except OSError:  # not Linux, another user's process, or the process has just ended
        return None
    return int(re.search(r"^read_bytes: (\d+)", text, re.MULTILINE)[1])


def peak_rss_bytes() -> int | None:
    """The peak RSS of this process plus the current PSS of its living descendants, in bytes.

    None if the system has no /proc.
    """
    try:
        peak = _kilobytes("/proc/self/status", "VmHWM") * 1024
    except OSError:
        return None
    for child in psutil.Process().children(recursive=True):
        try:
            peak += child.memory_full_info().pss
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return peak


def held_bytes() -> int | None:
    """The memory of this process and its living descendants that is not mapped from files; None where it is unknown.

    Excludes the page cache and libraries. Pages that a descendant shares with others count in part.
    """
    try:
        total = _kilobytes("/proc/self/status", "RssAnon", "RssShmem")
        for child in psutil.Process().children(recursive=True):
            with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
                total += _kilobytes(f"/proc/{child.pid}/smaps_rollup", "Pss_Anon", "Pss_Shmem")
    except OSError:  # not Linux, or another user's process
        return None
    return total * 1024


def _kilobytes(path: str, *names: str) -> int:
    """The sum of the fields `names` of a file in /proc."""
    return sum(int(n) for n in re.findall(rf"^(?:{'|'.join(names)}):\s+(\d+) kB", Path(path).read_text(), re.MULTILINE))


def die_with_parent() -> None:
    """Makes Linux kill this process when its parent ends, for whatever reason. Does nothing on other systems."""
    if sys.platform == "linux":
        import ctypes

        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
