"""`bench`: prepares data and stores, makes the missing measurements, and writes tables and figures."""

import argparse
from dataclasses import replace
from itertools import chain
from pathlib import Path

from rich.console import Console

import loaders
from harness.commands.common import load, prepare_stores, print_written
from harness.commands.display import Display, console
from harness.commands.publish import publish
from harness.data import catalogue
from harness.data.dataset import Dataset
from harness.errors import UserError, unknown
from harness.grids import Grid, datasets, expand, grid_of
from harness.machine import host
from harness.machine.lock import lock
from harness.records import jsonl
from harness.run import runner


def bench(options: argparse.Namespace) -> None:
    """Makes the missing measurements of the grids; writes the tables and figures of all measurements in them."""
    if not 0 <= options.consumer_ms < float("inf"):
        raise UserError(f"--consumer-ms is {options.consumer_ms}; it is the milliseconds per batch, at least 0.")
    if options.repeat < 1:
        raise UserError(f"--repeat is {options.repeat}; it counts processes per condition, so at least 1.")
    for name in options.loaders or ():
        if name not in loaders.NAMES:
            raise unknown("loader", name, loaders.NAMES)
    names = options.grid or catalogue.grids(options.dataset)
    # Checked before a data set is generated.
    in_grids = {condition.loader for name in names for condition in expand(name, "any").conditions}
    if absent := [name for name in options.loaders or () if name not in in_grids]:
        raise UserError(f"No condition of {', '.join(names)} is of {', '.join(absent)}; GRID=loaders has every loader.")
    out = console()
    folder = options.results
    written: list[Path] = []
    # A grid that compares data sets names them; any other grid runs on the data set given on the command line.
    specs = {name: datasets(name) or (options.dataset,) for name in names}
    loaded = {spec: load(spec, options.labels, out) for spec in dict.fromkeys(chain.from_iterable(specs.values()))}
    with lock(folder):
        for name in names:
            sets = [loaded[spec] for spec in specs[name]]
            grids = [with_consumer(grid_of(name, dataset), options.consumer_ms) for dataset in sets]
            for grid, dataset in zip(grids, sets, strict=True):
                measure(grid, dataset, folder, options, out)
            written += publish(grids, sets, folder, out)
    print_written(written, out)


def with_consumer(grid: Grid, consumer_ms: float) -> Grid:
    """The grid with this `consumer_ms` in every condition, and "-consumer" after its name; `grid` itself for 0."""
    if not consumer_ms:
        return grid
    conditions = tuple(replace(condition, consumer_ms=consumer_ms) for condition in grid.conditions)
    return replace(grid, name=f"{grid.name}-consumer", conditions=conditions)


def measure(grid: Grid, dataset: Dataset, folder: Path, options: argparse.Namespace, out: Console) -> None:
    """Makes the missing measurements of one grid on one data set, and the stores that they need."""
    path = folder / f"{grid.name}.jsonl"
    done = jsonl.read(path)
    tasks = runner.missing(grid, dataset, done, options.repeat, options.retry)
    if options.loaders:
        tasks = [task for task in tasks if task.condition.loader in options.loaders]
    other_cpus = {cpu for m in done if (cpu := m.provenance.get("cpu"))} - {host.cpu_name()}
    if tasks and other_cpus:
        raise UserError(
            f"{path} was measured on {', '.join(sorted(other_cpus))}, and this is {host.cpu_name()}: a median would "
            "mix both. Name another folder with --results (make: RESULTS=)."
        )
    out.print(f"{grid.name} on {dataset.name}: {grid.title}", style="bold", highlight=False)
    timing = grid.timing
    out.print(
        f"{len(tasks)} measurements to make, each with {timing.warmup_s:g} s of warm-up and a window of at least "
        f"{timing.measure_s:g} s, in a fresh process; existing measurements are not repeated.",
        highlight=False,
    )
    storeless = prepare_stores(dataset, {task.condition.loader for task in tasks}, folder, out)
    with Display(len(tasks), out) as display:
        runner.run(grid, dataset, tasks, storeless, path, display)
