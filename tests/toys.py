"""Loaders that misbehave, to be run in real workers."""

import os
import signal
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from scipy.sparse import csr_matrix

from loaders.protocol import UNCONVERTED, Batch, Incompatible


class Toy:
    """Delivers the same two cells for ever."""

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


class Nameless(Toy):
    """Delivers, but not with row ids."""

    @classmethod
    def open(cls, dataset, path, condition, *, rows):
        if rows:
            raise MemoryError("no room for names")
        return cls()


class Declining(Toy):
    @classmethod
    def open(cls, dataset, path, condition, *, rows):
        raise Incompatible("it does not feel like it")


class Raising(Toy):
    def act(self):
        raise ValueError("the third shelf is empty")


class Killed(Toy):
    def act(self):
        os.kill(os.getpid(), signal.SIGKILL)


class Crashing(Toy):
    def act(self):
        os.kill(os.getpid(), signal.SIGSEGV)


class Leaving(Toy):
    def act(self):
        print("going home", file=sys.stderr, flush=True)
        os._exit(7)


class Hanging(Toy):
    def act(self):
        time.sleep(3600)


class Hungry(Toy):
    """Holds 8 MB more with every batch but an epoch's first ten."""

    def epoch(self, index):
        held = []
        for i, batch in enumerate(super().epoch(index)):
            held += [np.ones(1_000_000)] if i >= 10 else []
            yield batch


class Mapping(Toy):
    """Reads the data set's first file again and again, through a map of it."""

    @classmethod
    def open(cls, dataset, path, condition, *, rows):
        toy = cls()
        toy.path = dataset.paths[0]
        toy.pages = np.memmap(toy.path, np.uint8, "r")[::4096]
        return toy

    def act(self):
        self.pages.sum()


class Replacing(Mapping):
    """Touches the file it reads."""

    def act(self):
        os.utime(self.path)
        time.sleep(0.001)


class Chatty(Toy):
    """Prints to standard output, by Python and past it."""

    def act(self):
        super().act()
        print("{not json")
        os.write(1, b"nor this\n")


class Garbage(Toy):
    """Writes into the harness's own pipe."""

    def act(self):
        for fd in range(3, 20):
            try:
                os.write(fd, b"\x00\xff not the protocol\n")
            except OSError:
                continue
        time.sleep(5)


class Unseen(Toy):
    """Delivers batches of nothing."""

    def epoch(self, index):
        return iter(())


class Converting(Toy):
    """Has a store of its own: a file that says how many cells it holds."""

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
    """Fills the disk."""

    @classmethod
    def prepare(cls, dataset, path, progress):
        with (path / "cells").open("wb") as file:
            for _ in range(30):
                file.write(bytes(1_000_000))


class Refusing(Converting):
    """Cannot convert what it is given."""

    @classmethod
    def prepare(cls, dataset, path, progress):
        raise Incompatible("it takes no counts")


class Dying(Converting):
    """Is killed half-way."""

    @classmethod
    def prepare(cls, dataset, path, progress):
        (path / "half").touch()
        os.kill(os.getpid(), signal.SIGKILL)


class Endless(Converting):
    """Stays half-way."""

    @classmethod
    def prepare(cls, dataset, path, progress):
        (path / "half").touch()
        time.sleep(3600)


QUIET = SimpleNamespace(begin=lambda *_: None, phase=lambda *_: None, end=lambda *_: None)
