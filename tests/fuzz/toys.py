"""Readers with planted defects, each for another storage form. The fuzzer must find every defect."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tests.fuzz.readers import open_ours
from tests.fuzz.stores import Form


class Toy:
    """Wraps a source of loadstone. Each subclass does something wrong whenever rows are read."""

    def __init__(self, source: Any, folder: Path) -> None:
        self.source, self.folder = source, folder

    def __getattr__(self, name: str) -> Any:
        return getattr(self.source, name)

    def __len__(self) -> int:
        return len(self.source)

    def batches(self, fetched: Any, cuts: list[int]) -> Iterator[Any]:
        for x in self.source.batches(fetched, cuts):
            changed = self.act(x)
            yield x if changed is None else changed

    def act(self, x: Any) -> Any:
        """The defect. Returns the minibatch to deliver instead of `x`, or None to deliver `x`."""
        raise NotImplementedError


class Wrong(Toy):
    """Delivers wrong counts."""

    def act(self, x: Any) -> None:
        values = x.data if hasattr(x, "indptr") else x
        values *= 2


class OutOfRange(Toy):
    """Delivers a gene index out of range, or for dense minibatches the wrong dtype."""

    def act(self, x: Any) -> Any:
        if not hasattr(x, "indptr"):
            return x.astype(np.float64)
        x.indices[:1] = 2**31 - 1
        return None


class Crashing(Toy):
    def act(self, x: Any) -> None:
        os.kill(os.getpid(), signal.SIGSEGV)


class Hanging(Toy):
    def act(self, x: Any) -> None:
        time.sleep(3600)


class Riddling(Toy):
    """Raises an error of the wrong type."""

    def act(self, x: Any) -> None:
        raise KeyError("part0.h5ad")


class Nameless(Toy):
    """Raises an error of the right type that names no file."""

    def act(self, x: Any) -> None:
        raise ValueError("bad chunk")


class Refusing(Toy):
    """Raises an error for a store that is not damaged."""

    def act(self, x: Any) -> None:
        raise OSError(f"{self.folder / 'part0.h5ad'} is refused")


class Leaving(Toy):
    """Leaves a thread behind."""

    def act(self, x: Any) -> None:
        if threading.active_count() < 50:
            threading.Thread(target=time.sleep, args=(60,), name="decode_0", daemon=True).start()


PLANTED = {
    "h5ad gzip": (Wrong, "differs"),
    "h5ad chunked": (OutOfRange, "invalid"),
    "h5ad contiguous": (Crashing, "crash"),
    "h5ad gzip shuffle": (Hanging, "hang"),
    "h5ad lzf": (Riddling, "riddle"),
    "h5ad zstd": (Nameless, "riddle"),
    "h5ad raw/X": (Refusing, "refused undamaged"),
    "h5ad layers": (Leaving, "left open"),
}
"""The reader with a defect and the expected verdict, by storage form."""


def open_planted(form: Form, folder: Path, output: str, threads: int) -> Any:
    return PLANTED[form.name][0](open_ours(form, folder, output, threads), folder)
