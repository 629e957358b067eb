"""The resources that this process and its descendants use: CPU time, bytes read from disk, and memory."""

import os
import re
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil


class Usage(NamedTuple):
    """Totals of this process, its living descendants, and its children that have ended and were waited for.

    cpu_s: CPU time in seconds. disk_read_bytes: bytes read from storage; None if they cannot be measured.
    """

    cpu_s: float
    disk_read_bytes: int | None


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
    return Usage(cpu_s, read)


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
    """The PSS of this process and its living descendants in bytes, without mapped pages of the store.

    store: the absolute paths of the store's files. Mapped pages of these files are not counted, because the system can
    drop them when memory is needed.
    """
    store, total = set(store), 0
    for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            total += sum(m.pss for m in process.memory_maps(grouped=False) if m.path not in store)
    return total


def die_with_parent() -> None:
    """Makes Linux kill this process when its parent ends, for whatever reason. Does nothing on other systems."""
    if sys.platform == "linux":
        import ctypes

        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
