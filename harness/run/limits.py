"""The limits under which a worker measures: its memory in the regime "bounded", and the disk of the condition."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from harness.condition import Condition
from harness.machine import blockdevice, cgroup, pagecache
from harness.machine.cgroup import Group
from harness.machine.interpreter import interpreter

STORE_OVER_LIMIT = 4  # in the regime "bounded", the store is at least so many times as large as the memory limit
READ_AHEAD_BYTES = 128 << 10  # the default of Linux; with a condition's `disk`


class Disk(NamedTuple):
    """The most reads and the most bytes that a disk serves in a second."""

    reads_per_s: int
    bytes_per_s: int


DISKS = {"hdd": Disk(100, 150_000_000), "gp3": Disk(3_000, 125_000_000), "nvme": None}
"""By the name in a condition. gp3: a volume of Amazon EBS without additional performance. nvme: no limit."""


class UnavailableError(Exception):
    """The limits of a condition cannot be set on this machine; the message is the reason."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What is set for the workers of one measurement.

    group: their control group; None if neither memory nor reads are limited. facts: a description of all limits.
    device: the numbers of the disk that `disk` limits.
    """

    group: Group | None
    facts: dict[str, Any]
    device: str
    disk: Disk | None

    def limit_disk(self) -> None:
        """Limits the disk; for the time after the workers have imported their libraries, which are on a disk too."""
        if self.disk:
            self.group.limit_reads(self.device, *self.disk)


@contextmanager
def limits(condition: Condition, files: Sequence[Path]) -> Iterator[Limits]:
    """Sets the limits of a condition for the workers to come, and removes them at the end.

    The memory limit holds for all that the workers use: their own memory, the page cache and the pages of libraries.
    Libraries are therefore dropped from the page cache; those that another process has mapped stay there, and are not
    counted. files: the store. What is set for the whole machine, the read-ahead of the disk, is restored at the end.
    Raises UnavailableError.
    """
    limit, facts = condition.memory_limit_bytes, {}
    disk = DISKS[condition.disk] if condition.disk else None
    if limit and (size := sum(file.stat().st_size for file in files)) < STORE_OVER_LIMIT * limit:
        raise UnavailableError(
            f"its store of {size / 1e6:,.0f} MB is less than {STORE_OVER_LIMIT} times the memory limit of "
            f"{limit / 1e6:,.0f} MB; take a larger data set"
        )
    controllers = [name for name, wanted in (("memory", limit), ("io", disk)) if wanted]
    with ExitStack() as stack:
        group = stack.enter_context(cgroup.group(*controllers)) if controllers else None
        if controllers and group is None:
            raise UnavailableError(
                f"this user can create no control group with the controllers {' and '.join(controllers)} on this system"
            )
        device = ""
        try:
            if limit:
                pagecache.drop(libraries(condition.loader))
                group.limit_memory(limit)
                facts["memory_bytes"] = limit
            if condition.disk:
                device = blockdevice.of(files[0])
                stack.enter_context(blockdevice.read_ahead(device, READ_AHEAD_BYTES))
                facts |= {"disk": condition.disk, "read_ahead_bytes": READ_AHEAD_BYTES}
            if disk:
                group.limit_reads(device, *disk)  # fails here, if at all
                group.unlimit_reads(device)
                facts |= disk._asdict()
        except OSError as error:
            raise UnavailableError(f"a limit could not be set: {error}") from error
        if group:
            facts["kind"] = group.kind
        yield Limits(group=group, facts=facts, device=device, disk=disk)


def unavailable(name: str, files: Sequence[Path]) -> str | None:
    """Why this machine cannot measure with the disk `name`, or "bounded"; None if it can. files: on that disk."""
    if name == "bounded":
        return None if cgroup.kind("memory") else "this user can create no control group that limits memory"
    try:
        with limits(Condition(dataset="", loader="", disk=name), files):
            return None
    except UnavailableError as reason:
        return str(reason)


def libraries(loader: str) -> list[Path]:
    """The shared libraries in the environment of the Python that runs this loader."""
    return list((Path(interpreter(loader)).parent.parent / "lib").rglob("*.so*"))
