"""The disk below a file, and its read-ahead."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

DEVICES = Path("/sys/dev/block")


def of(path: Path) -> str:
    """The numbers "major:minor" of the disk that holds `path`; of the whole disk if it is on a partition.

    Raises OSError if the file is not on one disk, such as on a network or in memory.
    """
    device = os.stat(path).st_dev
    entry = DEVICES / f"{os.major(device)}:{os.minor(device)}"
    if not entry.exists():
        raise OSError(f"{path.name} is not on a disk of its own device")
    disk = entry.resolve().parent if (entry / "partition").exists() else entry
    return (disk / "dev").read_text().strip()


@contextmanager
def read_ahead(device: str, n_bytes: int) -> Iterator[None]:
    """Sets the read-ahead of a disk for all processes, and restores it at the end. Raises OSError without the right."""
    file = DEVICES / device / "queue" / "read_ahead_kb"
    before = file.read_text()
    file.write_text(str(n_bytes // 1024))
    try:
        yield
    finally:
        file.write_text(before)
