"""The data set of the suite, made once under .asv/, and one measurement of a loader over it."""

import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import loaders
from harness import catalogue, pagecache
from harness.condition import Condition, Timing
from harness.dataset import Dataset
from harness.prepare import prepare, store_files, store_path
from harness.spawn import new_job
from harness.worker import run

FOLDER = Path(__file__).resolve().parents[2] / ".asv"
ROUNDS = 8  # with six, asv's test cannot find a difference significant, whatever it is
TIMING = Timing(warmup_s=0.5, measure_s=float(os.environ.get("ASV_MEASURE_S", "1.5")), order_s=0)
STORES = {"h5ad": "native", "zarr": "native_zarr"}


def dataset(loader: str = "native") -> Dataset:
    """The set, with the loader's store made and all of it in the page cache: asv measures the processor's path."""
    FOLDER.mkdir(exist_ok=True)
    os.chdir(FOLDER)  # data/ is made where a command is run
    small = catalogue.load("small")
    if reason := loaders.unavailable(loader):
        raise RuntimeError(reason)  # asv takes NotImplementedError as a skip, which nobody would see
    made = prepare(small, loader, lambda cells: None)
    if made and made.status != "ok":
        raise RuntimeError(made.reason)
    pagecache.warm(store_files(small, loader))
    return small


def measured(small: Dataset, condition: Condition, timing: Timing = TIMING) -> dict[str, Any]:
    """What a worker of the runner's finds: the fields of `harness.results.Measurement`."""
    more = {"condition": condition.to_dict(), "timing": asdict(timing), "files": []}
    job = new_job("measure", condition.loader, small, store_path(small, condition.loader), **more)
    return run(job, lambda message: None)


def us_per_cell(small: Dataset, condition: Condition) -> dict[str, Any]:
    """A sample of what a cell takes at steady state."""
    found = measured(small, condition)
    return sample(found["seconds"] / found["rows"] * 1e6)


def sample(value: float) -> dict[str, Any]:
    """A number in the form in which asv keeps single samples, and tests them for significance."""
    return {"samples": [value], "number": 1}
