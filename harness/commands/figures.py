"""`figures`: writes tables and figures from the records, without measuring."""

import argparse
from pathlib import Path

from harness.commands import cost as cost_pages
from harness.commands import cost_curves, fleet_kills, train
from harness.commands import steps as steps_tables
from harness.commands.common import DEFAULT_DATASET, load, print_written, to_read
from harness.commands.display import console
from harness.commands.publish import publish
from harness.data import catalogue
from harness.data.dataset import Dataset
from harness.errors import UserError
from harness.grids import datasets, grid_names, grid_of
from harness.machine import host
from harness.records import cost, jsonl, kills, steps, training


def figures(options: argparse.Namespace) -> None:
    """Draws all records of the results folder (see `to_read`), and compares the papers' claims with them.

    For a folder below results/ it also writes docs/results.md, the losses in docs/method.md and the tables in
    docs/costs.md, which come from the committed records.
    """
    from analysis import results

    folders = to_read(options.results)
    # Some committed records are of large data sets, which would have to be generated first.
    only = options.datasets or (None if folders == [options.results] else [DEFAULT_DATASET])
    for folder in folders:
        draw(folder, only)
    if any(folder.resolve().is_relative_to(host.ROOT / "results") for folder in folders):
        print_written([*results.write(), *cost_pages.document()], console())


def draw(folder: Path, only: list[str] | None) -> None:
    """Draws all records of the data sets `only` (None: of all data sets of datasets.toml).

    A grid is drawn if all data sets in its records are among `only`. Also writes the comparison with the papers'
    claims.
    """
    from analysis.tables.claims import table

    out = console()
    loaded: dict[str, Dataset] = {}
    written: list[Path] = []
    for name in grid_names():
        measured = jsonl.read(folder / f"{name}.jsonl")
        specs = [spec for spec in dict.fromkeys(m.condition.dataset for m in measured) if spec in catalogue.entries()]
        if not specs or not set(specs) <= set(only or specs):
            continue
        for spec in specs:
            loaded[spec] = loaded.get(spec) or load(spec, None, out)
            if not any(m.provenance.get("dataset_fingerprint") == loaded[spec].fingerprint for m in measured):
                raise UserError(f"The records of {name} are not of the files of {spec} on this machine.")
        for group in [specs] if datasets(name) else [[spec] for spec in specs]:
            grids = [grid_of(name, loaded[spec]) for spec in group]
            written += publish(grids, [loaded[spec] for spec in group], folder, out)
    for file, kind, publish_kind in (
        (training.FILE, training.Run, train.publish),
        (cost.FILE, cost.Cost, cost_curves.publish),
        (kills.FILE, kills.Kills, fleet_kills.publish),
        (steps.FILE, steps.Steps, steps_tables.publish),
    ):
        for spec in dict.fromkeys(record.dataset for record in jsonl.read(folder / file, kind)):
            if spec in catalogue.entries() and spec in (only or [spec]):
                loaded[spec] = loaded.get(spec) or load(spec, None, out)
                written += publish_kind(loaded[spec], folder)
    if not written:
        raise UserError(f"{folder} holds no records of a data set of datasets.toml.")
    print_written([*written, *table.write(folder, loaded.values())], out)
