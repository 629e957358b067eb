"""The disk below a file, and its read-ahead."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

DEVICES = Path("/sys/dev/block")
RESTORE = 'cat; echo "$1" > "$2"'
"""A shell program: waits until its standard input ends, then writes its first argument to the file `$2`."""


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
    """Sets the read-ahead of a disk for all processes, and restores it at the end. Raises OSError without the right.

    A process of its own restores it. That waits on a pipe, which Linux closes when this process ends, even if it is
    killed.
    """
    file = DEVICES / device / "queue" / "read_ahead_kb"
    before = file.read_text().strip()
    file.write_text(before)  # fails here, if at all
    command = ["sh", "-c", RESTORE, "sh", before, str(file)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True):
        file.write_text(str(n_bytes // 1024))
        yield
