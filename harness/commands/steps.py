"""`steps`: trains a transformer on the minibatches of several loaders, and measures what it waits for."""

import argparse
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import loaders
from harness.commands.common import load, prepare_stores, print_written
from harness.commands.display import console
from harness.data.dataset import Dataset
from harness.errors import UserError, unknown
from harness.machine.lock import lock
from harness.model.sizes import SIZES, Size
from harness.records import jsonl
from harness.records.steps import FILE, Steps

DEFAULT_LOADERS = ("native", "annbatch", "scdataset", "slaf")
DEVICES = ("cpu", "cuda")


def steps(options: argparse.Namespace) -> None:
    """Trains without a loader and with each of the loaders, appends a record of each run, and writes the table."""
    shape = shape_of(options)
    names = options.loaders or DEFAULT_LOADERS
    for name in names:
        if name not in loaders.NAMES:
            raise unknown("loader", name, loaders.NAMES)
    if options.device not in DEVICES:
        raise unknown("device", options.device, DEVICES)
    if find_spec("torch") is None:
        raise UserError("Training steps need torch: EXTRAS=torch make setup")
    from harness.experiments.steps import run as experiment
    from harness.model.device import lacks

    if reason := lacks(options.device):
        raise UserError(reason)
    out = console()
    dataset = load(options.dataset, [], out)
    if dataset.is_remote:
        raise UserError(f"{dataset.name} is in object storage; training steps are measured on files of this machine.")
    path = options.results / FILE
    trial = experiment.Trial(
        dataset=dataset, size=options.size, shape=shape, device=options.device, seconds=options.seconds
    )
    with lock(options.results):
        storeless = prepare_stores(dataset, names, options.results, out)
        for name, reason in storeless.items():
            out.print(f"{name}: not run, since its store could not be made: {reason}", highlight=False, markup=False)
        for run in experiment.runs(trial, [name for name in names if name not in storeless], options.workers):
            jsonl.append(path, run)
            out.print(describe(run), highlight=False, markup=False)
    print_written([path, *publish(dataset, options.results)], out)


def shape_of(options: argparse.Namespace) -> Size:
    """The model that the options name, with the length and the minibatch that they state. UserError for wrong ones."""
    if options.size not in SIZES:
        raise unknown("size", options.size, SIZES)
    numbers = (
        ("--length", options.length, 3),
        ("--batch-size", options.batch_size, 1),
        ("--workers", options.workers, 0),
    )
    for name, value, least in numbers:
        if value is not None and value < least:
            raise UserError(f"{name} is {value}; it is a whole number of at least {least}.")
    if not 0 < options.seconds < float("inf"):
        raise UserError(f"--seconds is {options.seconds:g}; it is the length of each run, so above 0.")
    stated = {"length": options.length, "batch_size": options.batch_size}
    return replace(SIZES[options.size], **{name: value for name, value in stated.items() if value is not None})


def describe(run: Steps) -> str:
    """One line about a run."""
    name = run.loader or "without a loader"
    if run.status != "ok":
        return f"{name}: {run.status}, {run.reason}"
    waited = "" if run.wait_share is None else f", waiting for {run.wait_share:.1%} of the time"
    return f"{name}: {run.steps:,} steps, {run.cells_per_s:,.0f} cells/s, MFU {run.mfu:.1%}{waited}"


def publish(dataset: Dataset, folder: Path) -> list[Path]:
    """Writes the table of the latest runs on this data set. Returns the files written."""
    from analysis.tables import steps as tables

    kept = [
        run
        for run in jsonl.read(folder / FILE, Steps)
        if run.provenance.get("dataset_fingerprint") == dataset.fingerprint
    ]
    if not kept:
        return []
    stem = folder / "figures" / f"{dataset.name}-steps-table"
    stem.parent.mkdir(exist_ok=True)
    frame = tables.table(kept)
    stem.with_suffix(".md").write_text(tables.markdown(frame))
    stem.with_suffix(".csv").write_text(frame.to_csv(index=False, float_format="%.6g"))
    return [stem.with_suffix(".md"), stem.with_suffix(".csv")]
