"""Brings a loader's store into being, once, whole or not at all."""

import errno
import shutil
from collections.abc import Callable
from pathlib import Path

import loaders
from harness.catalogue import DATA
from harness.dataset import Dataset
from harness.errors import UserError
from loaders.protocol import UNCONVERTED


def store_path(dataset: Dataset, loader: str) -> Path:
    """Where this loader's store of these very files lies, or will."""
    adapter = loaders.get(loader)
    return DATA / "stores" / f"{dataset.name}-{dataset.fingerprint}" / adapter.store.replace("/", "-")


def store_files(dataset: Dataset, loader: str) -> list[Path]:
    """The files the loader reads: the data set's own, or those of its store."""
    if loaders.get(loader).store == UNCONVERTED:
        return list(dataset.paths)
    return sorted(path for path in store_path(dataset, loader).rglob("*") if path.is_file())


def prepare(dataset: Dataset, loader: str, progress: Callable[[int], None]) -> None:
    """Converts the data set for the loader, unless that is done or not needed."""
    adapter = loaders.get(loader)
    path = store_path(dataset, loader)
    if adapter.store == UNCONVERTED or path.exists():
        return
    aside = path.with_name(path.name + ".partial")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    try:
        adapter.prepare(dataset, aside, progress)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        shutil.rmtree(aside)
        raise UserError(f"the disk of {DATA} is full; nothing that looks finished was left on it.") from error
    aside.rename(path)
