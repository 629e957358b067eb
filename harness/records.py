"""What the records give, with nothing measured: tables and figures drawn again, a page of all, and advice."""

import argparse
from pathlib import Path

from harness import catalogue, host, laws, results, runs, train
from harness.bench import DEFAULT_DATASET, RESULTS, load, publish, show_lines
from harness.condition import datasets, expand, grid_names
from harness.dataset import Dataset
from harness.display import console
from harness.errors import UserError
from harness.prepare import store_path


def figures(options: argparse.Namespace) -> None:
    """Draws the tables and figures of every grid in a results folder again, judges the papers' claims by its records,
    and measures nothing."""
    folders = _to_read(options.results)
    # The committed records are of large data sets, too, which would have to be made first.
    only = options.datasets or (None if folders == [options.results] else [DEFAULT_DATASET])
    for folder in folders:
        _draw(folder, only)


def _draw(folder: Path, only: list[str] | None) -> None:
    """only: the data sets whose grids are drawn; None: all."""
    from analysis import claims

    out = console()
    sets: dict[str, Dataset] = {}
    written: list[Path] = []
    for name in grid_names():
        measured = results.read(folder / f"{name}.jsonl")
        made = [spec for spec in dict.fromkeys(m.condition.dataset for m in measured) if spec in catalogue.entries()]
        if not made or not set(made) <= set(only or made):
            continue
        for spec in made:
            sets[spec] = sets.get(spec) or load(spec, None, out)
        groups = [made] if datasets(name) else [[spec] for spec in made]
        for spec in made:
            if not any(m.provenance.get("dataset_fingerprint") == sets[spec].fingerprint for m in measured):
                raise UserError(f"The records of {name} are of other files than {spec} is made of on this machine.")
        for group in groups:
            grids = [expand(name, spec) for spec in group]
            written += publish(grids, [sets[spec] for spec in group], folder, out)
    for file, kind, drawn in ((runs.FILE, runs.Run, train.publish), (laws.FILE, laws.Cost, laws.publish)):
        for spec in dict.fromkeys(record.dataset for record in results.read(folder / file, kind)):
            if spec in catalogue.entries() and spec in (only or [spec]):
                sets[spec] = sets.get(spec) or load(spec, None, out)
                written += drawn(sets[spec], folder)
    if not written:
        raise UserError(f"{folder} holds no records of a data set of datasets.toml.")
    written += claims.write(folder)
    out.print("\nWritten:", *(f"  {path}" for path in written), sep="\n", highlight=False)


def _to_read(folder: Path) -> list[Path]:
    """The folder, or the committed ones in place of this machine's own if it has none yet."""
    committed = sorted(RESULTS.glob("reference-*")) if folder == RESULTS / host.machine() else []
    return committed if committed and not folder.is_dir() else [results.existing(folder)]


def report(options: argparse.Namespace) -> None:
    """Writes one page of everything that lies in a results folder."""
    from analysis import report

    for folder in _to_read(options.results):
        console().print("\nWritten:", f"  {report.write(folder)}", sep="\n", highlight=False)


def advise(options: argparse.Namespace) -> None:
    """Prints the loaders whose minibatches are mixed as well as is asked for, the fastest first, and code for it."""
    import pandas as pd

    from analysis import advise, summary

    out = console()
    dataset = load(options.dataset, options.labels, out)
    if not dataset.label_names:
        raise UserError(f"{dataset.name} has no label to be mixed: name one with --labels.")
    frames = []
    for name in grid_names():
        measured = results.read(options.results / f"{name}.jsonl")
        grid = expand(name, dataset.name)
        if any(m.condition.dataset == dataset.name for m in measured):
            frame = summary.table(grid, dataset, measured, [], [], options.results)
            frames.append(advise.shortfalls(frame[frame["cache"] == "cold"], dataset, options.results))
    if not any(len(frame) for frame in frames):
        raise UserError(f"{options.results} has no records of {dataset.name}: make bench DATASET={options.dataset}")
    found = pd.concat([frame for frame in frames if len(frame)]).drop_duplicates("condition")
    chosen = advise.choose(found, dataset.label_names, options.within)
    if chosen.empty:
        raise UserError(f"None of {len(found)} settings measured is within {options.within:g} bits of random.")
    show_lines(advise.lines(chosen, dataset.label_names), out)
    fastest = chosen.loc[chosen["cells_per_s"].idxmax(), "condition"]
    program = advise.code(fastest, dataset, options.dataset, store_path(dataset, fastest.loader))
    out.print(f"\n{program}", highlight=False, markup=False)
