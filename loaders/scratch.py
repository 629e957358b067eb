"""Folders for what a loader copies from a bucket, and keeps while it is open."""

import os
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

MARK = ".copy-"


def folder(store: Path) -> TemporaryDirectory[str]:
    """A new folder beside that of the store, and so on the disk of the data; its `cleanup` removes it.

    Folders of processes that were killed, which could not remove them, are removed first.
    """
    store.parent.mkdir(parents=True, exist_ok=True)
    for left in store.parent.glob(f"{store.name}{MARK}*"):
        if not psutil.pid_exists(int(left.name.rpartition(MARK)[2].partition("-")[0])):
            shutil.rmtree(left, ignore_errors=True)
    return TemporaryDirectory(prefix=f"{store.name}{MARK}{os.getpid()}-", dir=store.parent)
