"""The data set of the benchmarks, which is generated once under .asv/, and the measurement of a loader on it."""

import os
from pathlib import Path
from typing import Any

import loaders
from harness.condition import Condition, Timing
from harness.data import catalogue
from harness.data.dataset import Dataset
from harness.machine import pagecache
from harness.run.job import Job, Window
from harness.run.stores import prepare, store_files, store_path
from harness.run.worker import measure_window

FOLDER = Path(__file__).resolve().parents[2] / ".asv"
ROUNDS = 8  # with six, asv's test finds no difference significant, however large it is
TIMING = Timing(warmup_s=0.5, measure_s=float(os.environ.get("ASV_MEASURE_S", "1.5")), order_s=0)
STORES = {"h5ad": "native", "zarr": "native_zarr"}


def dataset(loader: str = "native") -> Dataset:
    """The data set `small`, after creating the loader's store, if it is missing, and reading it into the page cache.

    So asv measures CPU work and not the disk. Changes the working directory to .asv/. Raises RuntimeError if the loader
    is not installed or its conversion fails.
    """
    FOLDER.mkdir(exist_ok=True)
    os.chdir(FOLDER)  # data/ is created in the working directory
    small = catalogue.load("small")
    if reason := loaders.unavailable(loader):
        raise RuntimeError(reason)  # not NotImplementedError: asv would silently skip the benchmark
    conversion = prepare(small, loader, lambda cells: None)
    if conversion and conversion.status != "ok":
        raise RuntimeError(conversion.reason)
    pagecache.warm(store_files(small, loader))
    return small


def measured(small: Dataset, condition: Condition, timing: Timing = TIMING) -> Window:
    """Measures one condition in this process, with the function that the workers of `harness.run` call."""
    job = Job(
        task="measure", loader=condition.loader, adapter=loaders.NAMES[condition.loader], dataset=small,
        store=store_path(small, condition.loader), condition=condition, timing=timing,
    )  # fmt: skip
    return measure_window(job, lambda message: None)


def us_per_cell(small: Dataset, condition: Condition) -> dict[str, Any]:
    """Measures the time per cell in microseconds, after a warm-up. Returns it as a result for asv, see `sample`."""
    window = measured(small, condition)
    return sample(window.seconds / window.rows * 1e6)


def sample(value: float) -> dict[str, Any]:
    """A result for asv whose only sample is `value`. asv's significance test uses the samples of all rounds."""
    return {"samples": [value], "number": 1}
