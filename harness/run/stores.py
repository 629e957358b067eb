"""The stores of loaders that do not read h5ad files: their paths, and their creation, once and atomically."""

import errno
import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import loaders
from harness.data.catalogue import DATA
from harness.data.dataset import Dataset
from harness.errors import UserError
from harness.records.conversion import Conversion
from harness.run.job import Job
from harness.run.process import spawn
from harness.run.provenance import provenance
from loaders.protocol import UNCONVERTED

STORES = DATA / "stores"


def store_path(dataset: Dataset, loader: str) -> Path:
    """The folder for the loader's store of this data set. It may not exist; a loader of h5ad files has none."""
    adapter = loaders.get(loader)
    return STORES / f"{dataset.name}-{dataset.fingerprint}" / adapter.store.replace("/", "-")


def store_files(dataset: Dataset, loader: str) -> list[Path]:
    """The files that the loader reads: the h5ad files of the data set, or all files of the loader's store."""
    if loaders.get(loader).store == UNCONVERTED:
        return list(dataset.paths)
    return sorted(path for path in store_path(dataset, loader).rglob("*") if path.is_file())


def prepare(dataset: Dataset, loader: str, progress: Callable[[int], None]) -> Conversion | None:
    """Converts the data set into the loader's store, in a worker, and returns the record of the conversion.

    Returns None, without converting, if the store exists, the loader needs none, or there are no files. `progress` is
    called with the number of cells done so far. A conversion that fails leaves no files behind. Raises UserError if the
    disk is full.
    """
    adapter = loaders.get(loader)
    path = store_path(dataset, loader)
    if adapter.store == UNCONVERTED or path.exists() or dataset.is_remote:
        return None
    partial = path.with_name(path.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    job = Job(
        task="convert", loader=loader, adapter=loaders.NAMES[loader], dataset=dataset, store=partial.resolve()
    )  # fmt: skip
    outcome = spawn(job, None, None, lambda phase, cells, seconds: progress(cells))
    if outcome.status == "ok":
        partial.rename(path)
    else:
        shutil.rmtree(partial)
    if outcome.errno == errno.ENOSPC:
        raise UserError(f"the disk of {DATA} is full; nothing that looks finished was left on it.")
    facts = provenance(loader, dataset)
    facts["store_bytes"] = sum(file.stat().st_size for file in store_files(dataset, loader)) or None
    return Conversion(
        dataset=dataset.name,
        loader=loader,
        store=adapter.store,
        status=outcome.status,
        reason=outcome.reason,
        provenance=facts,
        **(asdict(outcome.answer) if outcome.answer else {}),
    )
