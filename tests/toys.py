"""Toy loaders, most of which fail in a known way, for tests with real worker processes."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from scipy.sparse import csr_matrix

from loaders.protocol import UNCONVERTED, Batch, Incompatible


class Toy:
    """Delivers the same two cells, 100 times in an epoch."""

    name = "toy"
    imports = ()
    store = UNCONVERTED
    knobs = {}
    fetch_rows = 2

    @classmethod
    def broken(cls, condition):
        return {}

    @classmethod
    def open(cls, dataset, path, condition, *, rows):
        return cls()

    def epoch(self, index):
        for _ in range(100):
            self.act()
            yield Batch(csr_matrix(np.ones((2, 3), np.float32)), np.arange(2))

    def act(self):
        time.sleep(0.001)

    def close(self):
        pass


class OfTheSet(Toy):
    """Delivers cells with the genes of the data set, each with the count `value`."""

    value = 1.0

    def __init__(self, n_genes):
        self.x = csr_matrix(np.full((2, n_genes), self.value, np.float32))

    @classmethod
    def open(cls, dataset, path, condition, *, rows):
        assert (condition.output, condition.tokens) == ("csr", None)
        return cls(dataset.n_genes)

    def epoch(self, index):
        for _ in range(100):
            self.act()
            yield Batch(self.x, np.arange(2))


class Logarithms(OfTheSet):
    value = 0.5


class WithoutRowIds(Toy):
    """Delivers batches, but fails to open where row ids are requested."""

    @classmethod
    def open(cls, dataset, path, condition, *, rows):
        if rows:
            raise MemoryError("no room for row ids")
        return cls()


class Declining(Toy):
    @classmethod
    def open(cls, dataset, path, condition, *, rows):
        raise Incompatible("the toy declines every condition")


class Raising(Toy):
    def act(self):
        raise ValueError("planted error")


class Killed(Toy):
    def act(self):
        os.kill(os.getpid(), signal.SIGKILL)


class Crashing(Toy):
    def act(self):
        os.kill(os.getpid(), signal.SIGSEGV)


class Exiting(Toy):
    def act(self):
        print("last words", file=sys.stderr, flush=True)
        os._exit(7)


class Hanging(Toy):
    def act(self):
        time.sleep(3600)


class Leaking(Toy):
    """Keeps 8 MB more in memory with every batch after the first ten of an epoch."""

    def epoch(self, index):
        kept = []
        for i, batch in enumerate(super().epoch(index)):
            kept += [np.ones(1_000_000)] if i >= 10 else []
            yield batch


class Waiting(Toy):
    """Starts a process that needs 400 MB, and waits for ever, whatever becomes of it."""

    def act(self):
        subprocess.run([sys.executable, "-c", "b'x' * 400_000_000"], check=False)
        time.sleep(3600)


class Mapping(Toy):
    """Reads the data set's first file repeatedly through a memory map."""

    @classmethod
    def open(cls, dataset, path, condition, *, rows):
        toy = cls()
        toy.path = dataset.paths[0]
        toy.pages = np.memmap(toy.path, np.uint8, "r")[::4096]
        return toy

    def act(self):
        self.pages.sum()


class Replacing(Mapping):
    """Changes the modification time of the file that it reads."""

    def act(self):
        os.utime(self.path)
        time.sleep(0.001)


class Chatty(Toy):
    """Writes to standard output, with print and directly to the file descriptor."""

    def act(self):
        super().act()
        print("{not json")
        os.write(1, b"nor this\n")


class Garbage(Toy):
    """Writes bytes that are no message into the pipe through which the worker sends its messages."""

    def act(self):
        for fd in range(3, 20):
            try:
                os.write(fd, b"\x00\xff not the protocol\n")
            except OSError:
                continue
        time.sleep(5)


class Empty(Toy):
    """Delivers no batches."""

    def epoch(self, index):
        return iter(())


class Converting(Toy):
    """Has its own store: a file with the number of cells."""

    store = "toy/1"

    @classmethod
    def prepare(cls, dataset, path: Path, progress):
        progress(dataset.n_cells // 2)
        (path / "cells").write_text(str(dataset.n_cells))
        progress(dataset.n_cells)

    @classmethod
    def open(cls, dataset, path, condition, *, rows):
        assert (path / "cells").read_text() == str(dataset.n_cells)
        return cls()


class Filling(Converting):
    """Writes 30 MB, more than `small_disk` holds."""

    @classmethod
    def prepare(cls, dataset, path, progress):
        with (path / "cells").open("wb") as file:
            for _ in range(30):
                file.write(bytes(1_000_000))


class Refusing(Converting):
    """Declines to convert any data set."""

    @classmethod
    def prepare(cls, dataset, path, progress):
        raise Incompatible("the toy converts nothing")


class Dying(Converting):
    """Is killed in the middle of its conversion."""

    @classmethod
    def prepare(cls, dataset, path, progress):
        (path / "half").touch()
        os.kill(os.getpid(), signal.SIGKILL)


class Endless(Converting):
    """Hangs in the middle of its conversion."""

    @classmethod
    def prepare(cls, dataset, path, progress):
        (path / "half").touch()
        time.sleep(3600)


QUIET = SimpleNamespace(begin=lambda *_: None, phase=lambda *_: None, end=lambda *_: None)
