"""Limits a worker's memory, including its page cache, with a Linux control group (version 1 or 2).

A data set smaller than memory is soon in the page cache, even if the cache was emptied before. Under the limit the page
cache holds only a part of the store, as if the store were larger than the machine's memory.
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
GONE_S = 5.0  # timeout for the system to notice that the last process of a group has ended


class Group:
    """The control group of one worker. kind: "cgroup v1" or "cgroup v2". folder: its folder under /sys/fs/cgroup."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind, self.folder = kind, folder

    def add(self, pid: int) -> None:
        """Adds a process. Memory that it and its future children touch from now on counts towards the limit."""
        (self.folder / "cgroup.procs").write_text(str(pid))

    def limit(self, n_bytes: int) -> None:
        """Limits the sum of the group's process memory and page cache to `n_bytes`, without swapping.

        Page cache in excess of the limit is dropped at once. Raises OSError if the limit cannot be set, for example
        because dropping the page cache does not free enough.
        """
        name, swap = {
            "cgroup v1": ("memory.limit_in_bytes", "memory.swappiness"),
            "cgroup v2": ("memory.max", "memory.swap.max"),
        }[self.kind]
        with suppress(FileNotFoundError, PermissionError):  # a kernel without swap
            (self.folder / swap).write_text("0")
        (self.folder / name).write_text(str(n_bytes))

    def has_killed(self) -> bool:
        """Whether Linux has killed a process of the group because the group exceeded its limit."""
        name = {"cgroup v1": "memory.oom_control", "cgroup v2": "memory.events"}[self.kind]
        counts = dict(line.split() for line in (self.folder / name).read_text().splitlines())
        return int(counts.get("oom_kill", 0)) > 0

    def close(self) -> None:
        """Removes the group, whose processes must all have ended. Raises OSError if that fails for GONE_S seconds."""
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
    """Yields a new group for one worker, and removes it at the end; yields None if this user cannot create a group."""
    created = _create()
    try:
        yield created
    finally:
        if created:
            created.close()


def kind() -> str | None:
    """The kind of control group that this user can create ("cgroup v1" or "cgroup v2"); None if it is neither."""
    with group() as created:
        return created.kind if created else None


def _create() -> Group | None:
    for kind, parent in _parents():
        for leftover in parent.glob(f"{PREFIX}-*"):  # of a run that was killed
            if not psutil.pid_exists(int(leftover.name.split("-")[1])):
                with suppress(OSError):
                    leftover.rmdir()
        with suppress(OSError):
            return Group(kind, Path(tempfile.mkdtemp(prefix=f"{PREFIX}-{os.getpid()}-", dir=parent)))
    return None


def _parents() -> Iterator[tuple[str, Path]]:
    """Yields (kind, folder) of existing groups in which a group with a memory limit can perhaps be created.

    Version 1: the group of this process, then the root group. Version 2: the parent of this process's group, then this
    process's group; each only if it passes the memory controller on to its children. The parent comes first because a
    group that contains processes cannot pass controllers on. In a user's session, systemd delegates it to the user.
    """
    try:
        lines = [line.split(":", 2) for line in OWN.read_text().splitlines()]
    except OSError:  # not Linux
        return
    for _, controllers, path in lines:
        group_path = path.lstrip("/")
        if "memory" in controllers.split(","):
            yield from (("cgroup v1", parent) for parent in (V1 / group_path, V1) if (parent / "cgroup.procs").exists())
        elif not controllers:
            for parent in ((V2 / group_path).parent if group_path else V2, V2 / group_path):
                delegated = parent / "cgroup.subtree_control"
                if parent.is_relative_to(V2) and delegated.exists() and "memory" in delegated.read_text().split():
                    yield "cgroup v2", parent
