"""The main job: data, stores, measurements, table, figures."""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

import loaders
from harness import catalogue, ceiling, host, results
from harness.condition import Grid, datasets, expand
from harness.dataset import Dataset
from harness.display import Display, bar, console
from harness.errors import UserError, unknown

if TYPE_CHECKING:
    import pandas as pd

# What takes a second to import is imported where it is used, so that a mistake on the command line is told at once.

RESULTS = Path("results")
DEFAULT_DATASET = "tahoe-mini"
TEXTS = ("loader", "order", "output", "settings")  # columns that are not numbers


def bench(options: argparse.Namespace) -> None:
    """The main job: data, stores, measurements, table, figures."""
    if not 0 <= options.consumer_ms < float("inf"):
        raise UserError(f"--consumer-ms is {options.consumer_ms}; it is milliseconds a batch, from 0 up.")
    if options.repeat < 1:
        raise UserError(f"--repeat is {options.repeat}; it counts processes per condition, so at least 1.")
    for name in options.loaders or ():
        if name not in loaders.NAMES:
            raise unknown("loader", name, loaders.NAMES)
    names = options.grid or catalogue.grids(options.dataset)
    # What cannot be is found out before a data set is made.
    measured = {condition.loader for name in names for condition in expand(name, "any").conditions}
    if options.loaders and not measured & set(options.loaders):
        raise UserError(f"No condition of {', '.join(names)} is of {', '.join(options.loaders)}.")
    out = console()
    folder = options.results
    written: list[Path] = []
    # A grid that compares data sets names them; one of any other runs on the one that was asked for.
    specs = {name: datasets(name) or (options.dataset,) for name in names}
    made = {spec: load(spec, options.labels, out) for spec in dict.fromkeys(chain.from_iterable(specs.values()))}
    with results.lock(folder):
        for name in names:
            sets = [made[spec] for spec in specs[name]]
            grids = [with_consumer(expand(name, dataset.name), options.consumer_ms) for dataset in sets]
            for grid, dataset in zip(grids, sets, strict=True):
                measure(grid, dataset, folder, options, out)
            written += publish(grids, sets, folder, out)
    out.print("\nWritten:", *(f"  {path}" for path in written), sep="\n", highlight=False)


def with_consumer(grid: Grid, consumer_ms: float) -> Grid:
    """The grid with every condition's consumer set, under a name of its own; itself for 0."""
    if not consumer_ms:
        return grid
    conditions = tuple(replace(condition, consumer_ms=consumer_ms) for condition in grid.conditions)
    return replace(grid, name=f"{grid.name}-consumer", conditions=conditions)


def measure(grid: Grid, dataset: Dataset, folder: Path, options: argparse.Namespace, out: Console) -> None:
    """Makes the measurements that are missing, and the stores that they need."""
    from harness import runner

    path = folder / f"{grid.name}.jsonl"
    done = results.read(path)
    tasks = runner.missing(grid, dataset, done, options.repeat, options.retry)
    if options.loaders:
        tasks = [task for task in tasks if task.condition.loader in options.loaders]
    others = {cpu for m in done if (cpu := m.provenance.get("cpu"))} - {host.cpu_name()}
    if tasks and others:
        raise UserError(
            f"{path} was measured on {', '.join(sorted(others))}, and this is {host.cpu_name()}: a median of both "
            "would be of neither. Name another folder with --results (make: RESULTS=)."
        )
    out.print(f"{grid.name} on {dataset.name}: {grid.title}", style="bold", highlight=False)
    timing = grid.timing
    out.print(
        f"{len(tasks)} measurements to make, each {timing.warmup_s:g} s of warm-up and {timing.measure_s:g} s or more "
        "of window in a fresh process; what is there already is not made again.",
        highlight=False,
    )
    storeless = prepare_stores(dataset, {task.condition.loader for task in tasks}, folder, out)
    with Display(len(tasks), out) as display:
        runner.run(grid, dataset, tasks, storeless, path, display)


def publish(grids: Sequence[Grid], sets: Sequence[Dataset], folder: Path, out: Console) -> list[Path]:
    """Prints the tables and writes them and the figures; returns the files written, and the records.

    grids: one and the same, over each of the data sets.
    """
    from analysis import costs, diversity, figures, mixing, roofline, scaling, speedups, summary, text

    name, axis = grids[0].name, grids[0].axis
    path = folder / f"{name}.jsonl"
    measured = results.read(path)
    converted = results.read(folder / results.CONVERSIONS, results.Conversion)
    ceilings = ceiling.read(folder)
    written, frames = [path], []
    (folder / "figures").mkdir(exist_ok=True)
    for grid, dataset in zip(grids, sets, strict=True):
        if not any(summary.rows_of(grid, dataset, measured).values()):
            continue
        frame = summary.table(grid, dataset, measured, converted, ceilings, folder)
        frames.append(frame)
        show(frame, out)
        stem = folder / "figures" / f"{dataset.name}-{name}"
        table_md, table_csv = stem.with_name(f"{stem.name}-table.md"), stem.with_name(f"{stem.name}-table.csv")
        table_md.write_text(text.markdown(frame))
        table_csv.write_text(text.csv(frame))
        written += [table_md, table_csv]
        if axis:
            continue
        mixed = mixing.table(frame, dataset, folder)
        if len(mixed):
            diversity_csv = stem.with_name(f"{stem.name}-diversity.csv")
            diversity_csv.write_text(mixing.csv(mixed))
            written.append(diversity_csv)
        pictures = {
            "throughput": figures.throughput(frame, dataset.name),
            "lines": figures.lines(frame, dataset.name),
            "entropy": figures.entropy(frame, dataset.name),
            "bounds": diversity.draw(frame, dataset),
            "loaders": figures.bars(frame, dataset.name),
            "roofline": roofline.draw(frame, ceilings, dataset),
            "speedups": speedups.draw(frame, dataset.name),
            "mixing": mixing.draw(mixed, dataset.name),
            "epoch": costs.epoch(frame, dataset.name),
            "stores": costs.stores(converted, frame, dataset),
        }
        for kind, drawn in pictures.items():
            if drawn is not None:
                written += figures.save(drawn, stem.with_name(f"{stem.name}-{kind}"))
    if axis and (drawn := scaling.draw(frames, axis, grids[0].title)):
        written += figures.save(drawn, folder / "figures" / name)
    return [*written, *([folder / "logs"] if (folder / "logs").exists() else [])]


def show(frame: "pd.DataFrame", out: Console) -> None:
    from analysis import text

    show_lines(text.lines(frame), out)
    for note in text.footnotes(frame):
        out.print(note, highlight=False, markup=False)


def show_lines(lines: Sequence[dict[str, str]], out: Console) -> None:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in lines[0]:
        table.add_column(name, justify="left" if name in TEXTS else "right", no_wrap=True)
    for line in lines:
        table.add_row(*line.values())
    out.print()
    out.print(table, highlight=False)


def prepare_stores(dataset: Dataset, names: set[str], folder: Path, out: Console) -> dict[str, str]:
    """Makes the stores that are missing, and records each; returns the loaders that have none, with the reason."""
    from harness.prepare import prepare

    storeless = {}
    for name in sorted(names):
        if loaders.unavailable(name):
            continue
        with bar(f"store of {name}", "cells", out) as progress:
            made = prepare(dataset, name, lambda done, progress=progress: progress(done, dataset.n_cells))
        if made:
            results.append(folder / results.CONVERSIONS, made)
            size = f"{made.provenance['store_bytes'] / 1e6:,.0f} MB" if made.status == "ok" else made.reason
            out.print(f"store of {name}: {made.status}, {made.seconds or 0:.0f} s, {size}", highlight=False)
            if made.status != "ok":
                storeless[name] = made.reason
    return storeless


def load(spec: str, labels: Sequence[str] | None, out: Console) -> Dataset:
    """The data set, made where it is not there yet, and told what it is."""
    with bar(f"making {spec}", "cells", out) as progress:
        dataset = catalogue.load(spec, labels, progress)
    out.print(
        f"{dataset.name}: {dataset.n_cells:,} cells x {dataset.n_genes:,} genes, {dataset.nnz / dataset.n_cells:,.0f} "
        f"values a cell, {len(dataset.paths)} file(s), {dataset.size_bytes / 1e6:,.0f} MB, "
        f"labels: {', '.join(dataset.label_names) or 'none'}",
        highlight=False,
    )
    return dataset


def prepare_only(options: argparse.Namespace) -> None:
    """Makes the data and every installed loader's store; downloads what is published and not there."""
    out = console()
    if options.project:
        from harness import fetch

        with bar(f"downloading {options.dataset}", "MB", out) as progress:
            fetch.fetch_named(options.dataset, options.project, progress)
    dataset, folder = load(options.dataset, None, out), RESULTS / host.machine()
    with results.lock(folder):
        prepare_stores(dataset, set(loaders.NAMES), folder, out)
