"""The files of a source: open until it is closed, and the same as when they were opened."""

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import h5py

from loadstone.reading.validate import one_line


class Stamp(NamedTuple):
    """What changes when a file is written to or replaced."""

    device: int
    inode: int
    size: int
    mtime_ns: int

    @classmethod
    def of(cls, fd: int) -> "Stamp":
        status = os.fstat(fd)
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


class Files:
    """Open files, each with the stamp it had when it was opened.

    What was checked of a file's metadata says nothing of other content, so `check` is called after each fetch.
    """

    def __init__(self) -> None:
        self.stack = ExitStack()
        self.stamps: dict[int, tuple[str, Stamp]] = {}

    def __enter__(self) -> "Files":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Closes the files where opening them fails half-way; else they stay open."""
        if kind is not None:
            self.close()

    def open(self, path: Path | str) -> int:
        """The descriptor of a file that is read in pieces here and there; OSError for what is no regular file.

        The system is told so, or it reads on behind every piece: up to megabytes, as some disks are set up.
        """
        fd = open_regular(path)
        self.stack.callback(os.close, fd)
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
        self.stamps[fd] = str(path), Stamp.of(fd)
        return fd

    def open_hdf5(self, path: Path | str) -> tuple[int, h5py.File]:
        """A descriptor and HDF5's view of one and the same file; OSError naming it where it is not HDF5, or cut off."""
        fd = self.open(path)
        try:
            file = self.enter(h5py.File(path, "r"))
        except OSError as error:
            raise OSError(f"{path} cannot be read as HDF5: {one_line(error)}") from error
        if Stamp.of(file.id.get_vfd_handle()) != self.stamps[fd][1]:
            raise OSError(f"{path} was replaced while it was opened; open it again")
        return fd, file

    def enter[T](self, context: AbstractContextManager[T]) -> T:
        """Closes it with the files."""
        return self.stack.enter_context(context)

    def size(self, fd: int) -> int:
        """Bytes of an open file, as it was opened."""
        return self.stamps[fd][1].size

    def check(self) -> None:
        """OSError naming a file that was written to, or cut off, since it was opened."""
        for fd, (path, stamp) in self.stamps.items():
            if Stamp.of(fd) != stamp:
                raise OSError(f"{path} has changed since it was opened; open it again")

    def close(self) -> None:
        self.stack.close()


def open_regular(path: Path | str) -> int:
    """The descriptor of a file; OSError for a pipe, which would be waited for, a device or a folder."""
    fd = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(f"{path} is not a regular file")
    return fd


def check_regular(path: Path | str) -> None:
    """OSError for a file, or anything in a folder, that is none: a library would wait for a pipe for ever."""
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
    """Turns whatever a library raises of a damaged file into one sentence that names the file.

    Libraries raise any kind of exception for metadata that do not fit together: KeyError, TypeError, MemoryError.
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
    """The paths given, or the one given; ValueError for none at all."""
    if isinstance(paths, (str, os.PathLike)):
        return [paths]
    if not len(paths):
        raise ValueError("no file is named: the list of paths is empty")
    return list(paths)
