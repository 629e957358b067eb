"""The open files of a source. They must not change while they are open."""

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import h5py

from loadstone.reading.validate import one_line

METADATA_CACHE = 2**20  # size in bytes of HDF5's cache of metadata, for each file


class Stamp(NamedTuple):
    """Properties of a file that change when it is written to or replaced."""

    device: int
    inode: int
    size: int
    mtime_ns: int

    @classmethod
    def of(cls, fd: int) -> "Stamp":
        status = os.fstat(fd)
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


class Files:
    """Open files, each with its `Stamp` at the time of opening.

    The metadata of a file is validated when it is opened, and is valid only as long as the file does not change.
    Therefore `check` is called after each fetch.
    """

    def __init__(self) -> None:
        self.stack = ExitStack()
        self.stamps: dict[int, tuple[str, Stamp]] = {}

    def __enter__(self) -> "Files":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Closes the files if the `with` block raised an error; otherwise they stay open."""
        if kind is not None:
            self.close()

    def open(self, path: Path | str) -> int:
        """Opens a file for reads at random offsets and returns its descriptor. OSError if it is no regular file.

        The system is told that access is random. Otherwise it reads ahead at every read, on some disks by megabytes.
        """
        fd = open_regular(path)
        self.stack.callback(os.close, fd)
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
        self.stamps[fd] = str(path), Stamp.of(fd)
        return fd

    def open_hdf5(self, path: Path | str) -> tuple[int, h5py.File]:
        """Opens a file as `open` does and with h5py. OSError, with the path, if it is not HDF5 or is truncated."""
        fd = self.open(path)
        try:
            file = self.enter(h5py.File(path, "r"))
        except OSError as error:
            raise OSError(f"{path} cannot be read as HDF5: {one_line(error)}") from error
        cache = file.id.get_mdc_config()
        # By default the cache would keep all gene names.
        cache.initial_size = cache.min_size = cache.max_size = METADATA_CACHE
        file.id.set_mdc_config(cache)
        if Stamp.of(file.id.get_vfd_handle()) != self.stamps[fd][1]:
            raise OSError(f"{path} was replaced while it was opened; open it again")
        return fd, file

    def enter[T](self, context: AbstractContextManager[T]) -> T:
        """Enters a context, which `close` leaves, and returns its value."""
        return self.stack.enter_context(context)

    def size(self, fd: int) -> int:
        """The size in bytes that the file had when it was opened."""
        return self.stamps[fd][1].size

    def check(self) -> None:
        """OSError if the stamp of a file has changed since it was opened: it was written to or truncated."""
        for fd, (path, stamp) in self.stamps.items():
            if Stamp.of(fd) != stamp:
                raise OSError(f"{path} has changed since it was opened; open it again")

    def close(self) -> None:
        self.stack.close()


def open_regular(path: Path | str) -> int:
    """Opens a file and returns its descriptor. OSError for a folder, a device, or a pipe, whose reading would block."""
    fd = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(f"{path} is not a regular file")
    return fd


def check_regular(path: Path | str) -> None:
    """OSError if a file, or a file in a folder, is not a regular one: a library would wait for a pipe for ever."""
    if not os.path.isdir(path):
        os.close(open_regular(path))
        return
    for entry in os.scandir(path):
        if entry.is_dir(follow_symlinks=False):
            check_regular(entry.path)
        elif not entry.is_file() and not entry.is_dir():
            raise OSError(f"{entry.path} is not a regular file")


@contextmanager
def describing(path: Path | str) -> Iterator[None]:
    """Turns any exception that a library raises for a damaged file into an OSError or ValueError that names the file.

    For inconsistent metadata, libraries raise exceptions of many types, such as KeyError, TypeError or MemoryError.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, (OSError, ValueError)) and str(path) in str(error):
            raise
        kind = OSError if isinstance(error, OSError) else ValueError
        raise kind(
            f"{path} is damaged, or not of the expected form: {type(error).__name__}: {one_line(error)}"
        ) from error


def several(paths: Path | str | Sequence[Path | str]) -> list[Path | str]:
    """A list of the given paths, or of the one given path. ValueError if there is none."""
    if isinstance(paths, (str, os.PathLike)):
        return [paths]
    if not len(paths):
        raise ValueError("no file is named: the list of paths is empty")
    return list(paths)
