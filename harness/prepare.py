"""Brings a loader's store into being, once, whole or not at all, and measures what that costs."""

import errno
import shutil
from collections.abc import Callable
from pathlib import Path

import loaders
from harness.catalogue import DATA
from harness.dataset import Dataset
from harness.errors import UserError
from harness.provenance import provenance
from harness.results import Conversion
from harness.spawn import new_job, spawn
from loaders.protocol import UNCONVERTED

STORES = DATA / "stores"


def store_path(dataset: Dataset, loader: str) -> Path:
    """Where this loader's store of these very files lies, or will."""
    adapter = loaders.get(loader)
    return STORES / f"{dataset.name}-{dataset.fingerprint}" / adapter.store.replace("/", "-")


def store_files(dataset: Dataset, loader: str) -> list[Path]:
    """The files the loader reads: the data set's own, or those of its store."""
    if loaders.get(loader).store == UNCONVERTED:
        return list(dataset.paths)
    return sorted(path for path in store_path(dataset, loader).rglob("*") if path.is_file())


def prepare(dataset: Dataset, loader: str, progress: Callable[[int], None]) -> Conversion | None:
    """Converts the data set for the loader in a process of its own; None where that is done or not needed.

    A conversion that fails leaves nothing behind but its reason; UserError where the disk is full.
    """
    adapter = loaders.get(loader)
    path = store_path(dataset, loader)
    if adapter.store == UNCONVERTED or path.exists():
        return None
    aside = path.with_name(path.name + ".partial")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    job = new_job("convert", loader, dataset, aside)
    outcome = spawn(job, None, None, lambda phase, cells, seconds: progress(cells))
    if outcome["status"] == "ok":
        aside.rename(path)
    else:
        shutil.rmtree(aside)
    outcome.pop("log")
    if outcome.pop("errno", None) == errno.ENOSPC:
        raise UserError(f"the disk of {DATA} is full; nothing that looks finished was left on it.")
    facts = provenance(loader, dataset)
    facts["store_bytes"] = sum(file.stat().st_size for file in store_files(dataset, loader)) or None
    return Conversion(dataset=dataset.name, loader=loader, store=adapter.store, provenance=facts, **outcome)
