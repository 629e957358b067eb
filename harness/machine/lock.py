"""A lock on a folder, which only one process at a time can hold."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.errors import UserError


@contextmanager
def lock(folder: Path) -> Iterator[None]:
    """Creates the folder if needed, and holds its lock until the context ends.

    Does not wait for the lock: raises UserError if the folder is not writable or another process holds the lock.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / ".lock").open("w")
    except OSError as error:
        raise UserError(f"The folder {folder} cannot be written: {error.strerror}.") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                f"Another run is writing to {folder}; two at once would damage it. Wait for it, or stop it."
            ) from None
        yield
