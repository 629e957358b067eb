"""The open files of a source. They must not change while they are open."""

import os
import stat
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import h5py

from loadstone.reading.validate import one_line
from loadstone.remote.objects import CONNECTIONS, Object, open_objects
from loadstone.remote.urls import Storage, is_url

METADATA_CACHE = 2**20  # size in bytes of HDF5's cache of metadata, for each file
PART = 2**20  # bytes of an object that are read at a time


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
    """Open files, each with its `Stamp` at the time of opening, or objects in object storage.

    Metadata is validated when a file is opened, and stays valid only if the file does not change. `check` detects a
    change, and is called after each fetch. Objects need no such check, since every request states their ETag.
    """

    def __init__(self) -> None:
        self.stack = ExitStack()
        self.stamps: dict[int, tuple[str, Stamp]] = {}
        self.objects: dict[int, Object] = {}

    def __enter__(self) -> "Files":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Closes the files if the `with` block raised an error; otherwise they stay open."""
        if kind is not None:
            self.close()

    def open(self, path: Path | str) -> int:
        """Opens a file for reads at random offsets and returns its file descriptor, which `close` closes.

        Turns off the read-ahead of the operating system (POSIX_FADV_RANDOM), which on some disks is megabytes per read.
        OSError if the file is missing, unreadable or not a regular file.
        """
        fd = open_regular(path)
        self.stack.callback(os.close, fd)
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
        self.stamps[fd] = str(path), Stamp.of(fd)
        return fd

    def open_objects(self, urls: Sequence[str], storage: Storage) -> list[int]:
        """Opens objects; returns a number for each, which stands for its descriptor. Errors: `objects.open_objects`."""
        return [self.add(each) for each in open_objects(urls, storage)]

    def add(self, each: Object) -> int:
        """Returns a number for an object, which stands for its descriptor."""
        fd = os.memfd_create("object")  # a number that no file has; it is empty, and nothing is read from it
        self.stack.callback(os.close, fd)
        self.objects[fd] = each
        return fd

    def read(self, fd: int, size: int, place: int) -> bytes:
        """`size` bytes of a file or an object from offset `place` on; of a file that is too short, fewer.

        OSError if they cannot be read.
        """
        return self.objects[fd].read(place, size) if fd in self.objects else os.pread(fd, size, place)

    def read_whole(self, fd: int, size: int, place: int) -> bytes:
        """Does the same for many bytes: parts of an object at the same time. OSError also if there are fewer bytes."""
        if fd in self.objects:
            with ThreadPoolExecutor(CONNECTIONS) as pool:
                starts = range(place, place + size, PART)
                return b"".join(pool.map(lambda at: self.read(fd, min(PART, place + size - at), at), starts))
        parts, end = [], place + size
        while place < end:  # Linux reads at most 2 GB at a time
            parts.append(os.pread(fd, end - place, place))
            if not parts[-1]:
                raise OSError(f"{self.stamps[fd][0]} has fewer than {end:,} bytes")
            place += len(parts[-1])
        return b"".join(parts)

    def hdf5(self, fd: int) -> h5py.File:
        """Opens the file with this descriptor with h5py, too; `close` closes it.

        Raises OSError, with the path, if the file is not HDF5, is truncated, or was replaced since it was opened.
        """
        path, stamp = self.stamps[fd]
        try:
            file = self.enter(h5py.File(path, "r"))
        except OSError as error:
            raise OSError(f"{path} cannot be read as HDF5: {one_line(error)}") from error
        cache = file.id.get_mdc_config()
        # With HDF5's default size, the cache would keep all gene names in memory.
        cache.initial_size = cache.min_size = cache.max_size = METADATA_CACHE
        file.id.set_mdc_config(cache)
        if Stamp.of(file.id.get_vfd_handle()) != stamp:
            raise OSError(f"{path} was replaced while it was opened; open it again")
        return file

    def enter[T](self, context: AbstractContextManager[T]) -> T:
        """Enters a context manager and returns its value. `close` exits the context manager."""
        return self.stack.enter_context(context)

    def stamp(self, fd: int) -> Stamp:
        """The stamp that the file had when it was opened."""
        return self.stamps[fd][1]

    def size(self, fd: int) -> int:
        """The size in bytes that the file had when it was opened."""
        return self.objects[fd].size if fd in self.objects else self.stamp(fd).size

    def identity(self, fd: int) -> str:
        """A text that differs if the file, which keeps its name, or the object has other content."""
        if fd in self.objects:
            return "/".join(map(str, (self.objects[fd].url, self.objects[fd].etag, self.objects[fd].size)))
        return f"{self.stamp(fd).size}/{self.stamp(fd).mtime_ns}"

    def sizes(self) -> dict[int, int]:
        """The sizes in bytes that the files had when they were opened, by their descriptors. Without objects."""
        return {fd: stamp.size for fd, (_, stamp) in self.stamps.items()}

    def check(self) -> None:
        """OSError if an open file was written to or truncated after it was opened, that is, if its `Stamp` differs."""
        for fd, (path, stamp) in self.stamps.items():
            if Stamp.of(fd) != stamp:
                raise OSError(f"{path} has changed since it was opened; open it again")

    def close(self) -> None:
        self.stack.close()


def open_regular(path: Path | str) -> int:
    """Opens a file for reading and returns its descriptor. OSError if it is not a regular file: a pipe could block."""
    fd = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(f"{path} is not a regular file")
    return fd


def check_regular(path: Path | str) -> None:
    """OSError if `path`, or for a folder any file in it or in its subfolders, is not a regular file.

    A library that opens a pipe would block forever.
    """
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
    """Turns any exception in the `with` block into an OSError or a ValueError that names the file `path`.

    An OSError stays an OSError; all others become ValueError. For inconsistent metadata, libraries raise exceptions of
    many types, such as KeyError, TypeError or MemoryError.
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


def all_urls(paths: Sequence[Path | str]) -> bool:
    """Whether the paths are URLs. ValueError if some are and others are not, or if a URL is of no known kind."""
    urls = [is_url(path) for path in paths]
    if any(urls) and not all(urls):
        raise ValueError(f"{paths[urls.index(True)]} is a URL and {paths[urls.index(False)]} is not; name one kind")
    return any(urls)


def several(paths: Path | str | Sequence[Path | str]) -> list[Path | str]:
    """`paths` as a list; a single path becomes a list of one. ValueError if the sequence is empty."""
    if isinstance(paths, (str, os.PathLike)):
        return [paths]
    if not len(paths):
        raise ValueError("no file is named: the list of paths is empty")
    return list(paths)
