"""Readers with planted defects, one for each storage form named here: the fuzzer must find them."""

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
    """Our source, read through."""

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
        """Does harm; a minibatch to deliver instead of this one, or None."""
        raise NotImplementedError


class Wrong(Toy):
    """Delivers other counts."""

    def act(self, x: Any) -> None:
        values = x.data if hasattr(x, "indptr") else x
        values *= 2


class OutOfRange(Toy):
    """Delivers a gene that does not exist; of a dense minibatch another type."""

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
    def act(self, x: Any) -> None:
        raise KeyError("part0.h5ad")


class Nameless(Toy):
    """Its error is of the right type, and says nothing."""

    def act(self, x: Any) -> None:
        raise ValueError("bad chunk")


class Refusing(Toy):
    """Refuses what is not damaged."""

    def act(self, x: Any) -> None:
        raise OSError(f"{self.folder / 'part0.h5ad'} does not please")


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
"""The defect by the form's name, and the verdict that it must be given."""


def open_planted(form: Form, folder: Path, output: str, threads: int) -> Any:
    return PLANTED[form.name][0](open_ours(form, folder, output, threads), folder)
