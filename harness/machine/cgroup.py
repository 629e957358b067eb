"""Limits a worker's memory, page cache included, and its disk, with Linux control groups (version 1 or 2)."""

import os
import re
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

import psutil

ROOT = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")
PREFIX = "loadstone"
GONE_S = 5.0  # timeout for the system to notice that the last process of a group has ended

JOIN = 'for n in $(seq "$1"); do shift; echo $$ > "$1" || exit 1; done; shift; exec "$@"'
"""A shell program; its arguments are the number of cgroup.procs files to join, these files, and a command."""

Controller = Literal["memory", "io"]
V1_NAMES = {"memory": "memory", "io": "blkio"}
COUNT_OF_READS = re.compile(r"\b(?:Read |rios=)(\d+)")  # in version 1 and 2


class Group:
    """The control group of one worker: in version 1 a folder for each controller, in version 2 one folder.

    kind: "cgroup v1" or "cgroup v2". Its methods raise OSError if the system refuses.
    """

    def __init__(self, kind: str, folders: Mapping[Controller, Path]) -> None:
        self.kind, self.folders = kind, folders

    def wrap(self, command: Sequence[str]) -> list[str]:
        """A command that joins the group and then becomes `command`, so that all that this uses is counted."""
        files = [str(folder / "cgroup.procs") for folder in set(self.folders.values())]
        return ["sh", "-c", JOIN, "sh", str(len(files)), *files, *command]

    def limit_memory(self, n_bytes: int) -> None:
        """Limits the sum of the group's process memory and page cache to `n_bytes`, without swapping."""
        name, swap = {
            "cgroup v1": ("memory.limit_in_bytes", "memory.swappiness"),
            "cgroup v2": ("memory.max", "memory.swap.max"),
        }[self.kind]
        with suppress(FileNotFoundError, PermissionError):  # a kernel without swap
            (self.folders["memory"] / swap).write_text("0")
        (self.folders["memory"] / name).write_text(str(n_bytes))

    def limit_reads(self, device: str, reads_per_s: int, bytes_per_s: int) -> None:
        """Limits the group's reads from a disk. device: its numbers, "major:minor", of the disk, not of a partition."""
        folder = self.folders["io"]
        if self.kind == "cgroup v1":
            (folder / "blkio.throttle.read_iops_device").write_text(f"{device} {reads_per_s}")
            (folder / "blkio.throttle.read_bps_device").write_text(f"{device} {bytes_per_s}")
        else:
            (folder / "io.max").write_text(f"{device} rbps={bytes_per_s} riops={reads_per_s}")

    def unlimit_reads(self, device: str) -> None:
        """Removes the limit of `limit_reads`."""
        if self.kind == "cgroup v1":
            self.limit_reads(device, 0, 0)
        else:
            (self.folders["io"] / "io.max").write_text(f"{device} rbps=max riops=max")

    def has_killed(self) -> bool:
        """Whether Linux has killed a process of the group because the group exceeded its memory limit."""
        if "memory" not in self.folders:
            return False
        name = {"cgroup v1": "memory.oom_control", "cgroup v2": "memory.events"}[self.kind]
        counts = dict(line.split() for line in (self.folders["memory"] / name).read_text().splitlines())
        return int(counts.get("oom_kill", 0)) > 0

    def close(self) -> None:
        """Removes the group, whose processes must all have ended. Raises OSError if that fails for GONE_S seconds."""
        for folder in set(self.folders.values()):
            stop = time.monotonic() + GONE_S
            while True:
                try:
                    folder.rmdir()
                    break
                except OSError:
                    if time.monotonic() > stop:
                        raise
                    time.sleep(0.05)


@contextmanager
def group(*controllers: Controller) -> Iterator[Group | None]:
    """Yields a new group with these controllers, and removes it at the end; None if this user cannot create one."""
    created = _create(controllers)
    try:
        yield created
    finally:
        if created:
            created.close()


def kind(*controllers: Controller) -> str | None:
    """The kind of group with these controllers that this user can create: "cgroup v1", "cgroup v2" or None."""
    with group(*controllers) as created:
        return created.kind if created else None


def own_reads() -> int | None:
    """The number of reads from disks by all processes of this process's group, while its reads are limited.

    None if it is not a group that `group` created, or if this group does not count them.
    """
    own = _own()
    for name, file in (("blkio", "blkio/{}/blkio.throttle.io_serviced"), ("", "{}/io.stat")):
        path = ROOT / file.format(own.get(name, ""))
        if path.parent.name.startswith(f"{PREFIX}-") and path.exists():
            return sum(map(int, COUNT_OF_READS.findall(path.read_text())))
    return None


def _own() -> dict[str, str]:
    """The groups of this process, relative to ROOT and the controller: by controller, and "" is that of version 2."""
    try:
        lines = [line.split(":", 2) for line in OWN.read_text().splitlines()]
    except OSError:  # not Linux
        return {}
    return {name: path.lstrip("/") for _, names, path in lines for name in names.split(",")}


def _create(controllers: tuple[Controller, ...]) -> Group | None:
    for kind, parents in _parents(controllers):
        folders: dict[Controller, Path] = {}
        with suppress(OSError):
            for controller, parent in parents.items():
                shared = next((folder for folder in folders.values() if folder.parent == parent), None)
                folders[controller] = shared or _folder_in(parent)
            return Group(kind, folders)
        for folder in set(folders.values()):  # another controller refused
            folder.rmdir()
    return None


def _folder_in(parent: Path) -> Path:
    for leftover in parent.glob(f"{PREFIX}-*"):  # of a run that was killed
        if not psutil.pid_exists(int(leftover.name.split("-")[1])):
            with suppress(OSError):
                leftover.rmdir()
    return Path(tempfile.mkdtemp(prefix=f"{PREFIX}-{os.getpid()}-", dir=parent))


def _parents(controllers: tuple[Controller, ...]) -> Iterator[tuple[str, dict[Controller, Path]]]:
    """Yields (kind, folder by controller) of existing groups in which a new group can perhaps be created.

    Version 1: the group of this process, then the root group of each controller. Version 2: the parent of this
    process's group, then this process's group; each only if it passes all the controllers on to its children. The
    parent comes first because a group that contains processes cannot pass controllers on. In a user's session, systemd
    delegates it to the user.
    """
    own = _own()
    v1 = {controller: V1_NAMES[controller] for controller in controllers}
    if all(name in own and (ROOT / name / "cgroup.procs").exists() for name in v1.values()):
        yield "cgroup v1", {controller: ROOT / name / own[name] for controller, name in v1.items()}
        yield "cgroup v1", {controller: ROOT / name for controller, name in v1.items()}
    if "" in own:
        for parent in ((ROOT / own[""]).parent if own[""] else ROOT, ROOT / own[""]):
            delegated = parent / "cgroup.subtree_control"
            if not parent.is_relative_to(ROOT) or not delegated.exists():
                continue
            if set(controllers) <= set(delegated.read_text().split()):
                yield "cgroup v2", dict.fromkeys(controllers, parent)
