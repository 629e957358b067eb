"""A bound on a worker's memory, its share of the page cache included: a Linux control group, version 1 or 2.

A set smaller than memory is soon read from memory, whatever was emptied before. Inside the bound the page cache holds
no more than a share of the store, as that of a machine would of a store that is larger than its memory.
"""

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

V1, V2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")
PREFIX = "loadstone"
GONE_S = 5.0  # for the system to see that a group's last process has ended


class Group:
    """A control group of its own for one worker. kind: "cgroup v1" or "cgroup v2"."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind, self.folder = kind, folder

    def add(self, pid: int) -> None:
        """What the process touches from now on is counted here, and what it starts."""
        (self.folder / "cgroup.procs").write_text(str(pid))

    def limit(self, n_bytes: int) -> None:
        """No more than this, process memory and page cache together; nothing is swapped out to keep to it.

        What is over it is dropped from the page cache at once. OSError where that does not suffice.
        """
        name, swap = {
            "cgroup v1": ("memory.limit_in_bytes", "memory.swappiness"),
            "cgroup v2": ("memory.max", "memory.swap.max"),
        }[self.kind]
        with suppress(FileNotFoundError, PermissionError):  # a kernel without swap
            (self.folder / swap).write_text("0")
        (self.folder / name).write_text(str(n_bytes))

    def has_killed(self) -> bool:
        """Whether a process here needed more than the limit and was killed for it."""
        name = {"cgroup v1": "memory.oom_control", "cgroup v2": "memory.events"}[self.kind]
        counts = dict(line.split() for line in (self.folder / name).read_text().splitlines())
        return int(counts.get("oom_kill", 0)) > 0

    def close(self) -> None:
        """Once all its processes have ended."""
        stop = time.monotonic() + GONE_S
        while True:
            try:
                self.folder.rmdir()
                return
            except OSError:
                if time.monotonic() > stop:
                    raise
                time.sleep(0.05)


@contextmanager
def group() -> Iterator[Group | None]:
    """A group to bound a worker's memory with; None where this user can make none."""
    made = _make()
    try:
        yield made
    finally:
        if made:
            made.close()


def kind() -> str | None:
    """The kind of group that this user can make; None for none."""
    with group() as made:
        return made.kind if made else None


def _make() -> Group | None:
    for kind, parent in _parents():
        for left in parent.glob(f"{PREFIX}-*"):  # by a run that was killed
            if not psutil.pid_exists(int(left.name.split("-")[1])):
                with suppress(OSError):
                    left.rmdir()
        with suppress(OSError):
            return Group(kind, Path(tempfile.mkdtemp(prefix=f"{PREFIX}-{os.getpid()}-", dir=parent)))
    return None


def _parents() -> Iterator[tuple[str, Path]]:
    """(kind, folder) of the groups below which one could be made that counts memory.

    Version 1: this process's own. Version 2 gives a group's controllers to its children only where it holds no process
    itself: the one above this process's own, which a user's scope has delegated to the user, or the own one if it has
    been prepared so.
    """
    try:
        lines = [line.split(":", 2) for line in OWN.read_text().splitlines()]
    except OSError:  # not Linux
        return
    for _, controllers, path in lines:
        own = path.lstrip("/")
        if "memory" in controllers.split(","):
            yield from (("cgroup v1", parent) for parent in (V1 / own, V1) if (parent / "cgroup.procs").exists())
        elif not controllers:
            for parent in ((V2 / own).parent if own else V2, V2 / own):
                given = parent / "cgroup.subtree_control"
                if parent.is_relative_to(V2) and given.exists() and "memory" in given.read_text().split():
                    yield "cgroup v2", parent
