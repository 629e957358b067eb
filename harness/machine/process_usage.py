"""What a process and its descendants use: processor time, bytes read, memory."""

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
