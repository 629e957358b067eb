"""Shared by several commands: the default data set, the results folder, loading a data set, making stores."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

import loaders
from harness.commands.display import bar
from harness.data import catalogue
from harness.data.dataset import Dataset
from harness.grids import grid_names
from harness.machine import host
from harness.records import conversion, jsonl
from harness.run.stores import prepare

RESULTS = Path("results")
DEFAULT_DATASET = "tahoe-mini"
TEXTS = ("loader", "order", "output", "settings")
"""The columns of printed tables that hold text and are aligned to the left."""


def load(spec: str, labels: Sequence[str] | None, out: Console) -> Dataset:
    """The data set that `spec` names, as `catalogue.load` returns it; prints a line that describes it."""
    with bar(f"making {spec}", "cells", out) as progress:
        dataset = catalogue.load(spec, labels, progress)
    size = f"in {dataset.bucket}" if dataset.is_remote else f"{dataset.size_bytes / 1e6:,.0f} MB"
    out.print(
        f"{dataset.name}: {dataset.n_cells:,} cells x {dataset.n_genes:,} genes, {dataset.nnz / dataset.n_cells:,.0f} "
        f"values per cell, {len(dataset.paths)} file(s), {size}, "
        f"labels: {', '.join(dataset.label_names) or 'none'}",
        highlight=False,
    )
    return dataset


def prepare_stores(dataset: Dataset, names: Iterable[str], folder: Path, out: Console) -> dict[str, str]:
    """Makes the missing stores of the installed loaders among `names`, and records each conversion in `folder`.

    Returns the reason for each loader whose store could not be made.
    """
    storeless = {}
    for name in sorted(names):
        if loaders.unavailable(name):
            continue
        with bar(f"store of {name}", "cells", out) as progress:
            record = prepare(dataset, name, lambda done, progress=progress: progress(done, dataset.n_cells))
        if record:
            jsonl.append(folder / conversion.FILE, record)
            size = f"{record.provenance['store_bytes'] / 1e6:,.0f} MB" if record.status == "ok" else record.reason
            out.print(f"store of {name}: {record.status}, {record.seconds or 0:.0f} s, {size}", highlight=False)
            if record.status != "ok":
                storeless[name] = record.reason
    return storeless


def print_table(lines: Sequence[dict[str, str]], out: Console) -> None:
    """Prints rows, each a dict of text by column, as a table with the columns of the first row."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in lines[0]:
        table.add_column(name, justify="left" if name in TEXTS else "right", no_wrap=True)
    for line in lines:
        table.add_row(*line.values())
    out.print()
    out.print(table, highlight=False)


def print_written(paths: Iterable[Path], out: Console) -> None:
    """Prints the files that a command has written, one a line."""
    out.print("\nWritten:", *(f"  {path}" for path in paths), sep="\n", highlight=False)


def to_read(folder: Path) -> list[Path]:
    """The results folders to read: `folder`, if it exists.

    If `folder` is this machine's own and holds no records, or those of conversions alone, the committed folders
    results/reference-* with records of a grid that grids.toml still has. Raises UserError if there is nothing to read.
    """
    if folder != RESULTS / host.machine() or {path.name for path in folder.glob("*.jsonl")} - {conversion.FILE}:
        return [jsonl.existing(folder)]
    names = {f"{name}.jsonl" for name in grid_names()}
    committed = [path for path in sorted(RESULTS.glob("reference-*")) if names & {file.name for file in path.iterdir()}]
    return committed or [jsonl.existing(folder)]
