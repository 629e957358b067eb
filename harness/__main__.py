"""The command line: python -m harness VERB."""

import argparse
import errno
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

import loaders
from harness import catalogue, host, results
from harness.condition import Grid, expand
from harness.dataset import Dataset
from harness.display import Display, bar, console
from harness.errors import UserError, unknown

if TYPE_CHECKING:
    import pandas as pd

# What takes a second to import is imported where it is used, so that a mistake on the command line is told at once.

RESULTS = Path("results")

EXAMPLES = """
examples:
  python -m harness bench --dataset tahoe-mini --grid quick
  python -m harness bench --dataset /data/atlas.h5ad --labels donor,cell_type
  python -m harness bench --dataset '/data/plates/*.h5ad' --loaders native,scdataset --repeat 3
  python -m harness prepare tahoe --project my-google-cloud-project
  python -m harness status
"""


def main(arguments: list[str] | None = None) -> int:
    """Runs one verb; 0 when it did what was asked, 1 if it found what is broken, 2 for bad input, 130 if stopped."""
    options = parser().parse_args(arguments)
    try:
        return options.run(options) or 0
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES):
            raise
        print(f"error: {error.filename or 'a file'} could not be written: {error.strerror}.", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted: every finished line is kept; the same command goes on from there.", file=sys.stderr)
        return 130


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="python -m harness",
        description="Measures single-cell data loaders under one contract.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = top.add_subparsers(required=True, metavar="VERB")
    data = argparse.ArgumentParser(add_help=False)
    data.add_argument(
        "--dataset", default="tahoe-mini", metavar="D",
        help=f"{', '.join(catalogue.entries())}, or any h5ad file, folder of them or quoted glob (default: tahoe-mini)",
    )  # fmt: skip
    data.add_argument(
        "--labels", type=_names, metavar="A,B",
        help="obs columns for the entropy, the first for the table (default: categoricals of 2 to 10,000 values)",
    )  # fmt: skip

    verb = verbs.add_parser("bench", parents=[data], help="prepare, measure what is missing, print the table, draw")
    verb.add_argument("--grid", type=_names, metavar="G", help="grids of grids.toml (default: the data set's own)")
    verb.add_argument("--loaders", type=_names, metavar="L", help=f"only these, of {', '.join(loaders.NAMES)}")
    verb.add_argument("--repeat", type=int, default=1, metavar="N", help="processes per condition (default: 1)")
    verb.add_argument(
        "--consumer-ms", type=float, default=0.0, metavar="MS",
        help="emulate a consumer that takes so long over each batch, and see whether it would wait (default: 0)",
    )  # fmt: skip
    verb.add_argument("--retry", action="store_true", help="measure again what was skipped, failed or timed out")
    verb.set_defaults(run=bench)

    verb = verbs.add_parser("prepare", help="generate, download or convert a data set, and measure nothing")
    verb.add_argument("dataset", nargs="?", default="tahoe-mini", metavar="D", help="as for bench")
    verb.add_argument("--project", metavar="P", help="the Google Cloud project to bill for a download that is charged")
    verb.set_defaults(run=prepare_only, labels=None)

    verb = verbs.add_parser("status", help="what a results folder holds, and what is doubtful in it")
    verb.add_argument("folder", nargs="?", type=Path, default=RESULTS, help="(default: results)")
    verb.set_defaults(run=status)

    verb = verbs.add_parser("validate", help="look through results for what cannot be; exit 1 where there is any")
    verb.add_argument("folder", nargs="?", type=Path, default=RESULTS, help="(default: results)")
    verb.set_defaults(run=validate)

    verb = verbs.add_parser("doctor", help="which loaders import here, and what this machine allows")
    verb.add_argument("--json", action="store_true", help="the same for programs")
    verb.set_defaults(run=examine)
    return top


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


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
    folder = RESULTS / host.machine()
    dataset = load(options, out)
    written: list[Path] = []
    with results.lock(folder):
        for name in names:
            grid = with_consumer(expand(name, dataset.name), options.consumer_ms)
            written += bench_grid(grid, dataset, folder, options, out)
    out.print("\nWritten:", *(f"  {path}" for path in written), sep="\n", highlight=False)


def with_consumer(grid: Grid, consumer_ms: float) -> Grid:
    """The grid with every condition's consumer set, under a name of its own; itself for 0."""
    if not consumer_ms:
        return grid
    conditions = tuple(replace(condition, consumer_ms=consumer_ms) for condition in grid.conditions)
    return replace(grid, name=f"{grid.name}-consumer", conditions=conditions)


def bench_grid(grid: Grid, dataset: Dataset, folder: Path, options: argparse.Namespace, out: Console) -> list[Path]:
    from harness import runner

    path = folder / f"{grid.name}.jsonl"
    tasks = runner.missing(grid, dataset, results.read(path), options.repeat, options.retry)
    if options.loaders:
        tasks = [task for task in tasks if task.condition.loader in options.loaders]
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
    logs = [folder / "logs"] if (folder / "logs").exists() else []
    return [path, *publish(grid, dataset, folder, out), *logs]


def publish(grid: Grid, dataset: Dataset, folder: Path, out: Console) -> list[Path]:
    """Prints the table and writes it and the figures; returns the files written."""
    from analysis import figures, report

    measured = results.read(folder / f"{grid.name}.jsonl")
    converted = results.read(folder / results.CONVERSIONS, results.Conversion)
    frame = report.table(grid, dataset, measured, converted, folder)
    show(frame, out)
    stem = folder / "figures" / f"{dataset.name}-{grid.name}"
    stem.parent.mkdir(exist_ok=True)
    table_md, table_csv = stem.with_name(f"{stem.name}-table.md"), stem.with_name(f"{stem.name}-table.csv")
    table_md.write_text(report.markdown(frame))
    table_csv.write_text(report.csv(frame))
    written = [table_md, table_csv]
    pictures = {
        "throughput": figures.throughput(frame, dataset.name),
        "entropy": figures.entropy(frame, dataset.name),
        "loaders": figures.bars(frame, dataset.name),
    }
    for name, figure in pictures.items():
        if figure is not None:
            written += figures.save(figure, stem.with_name(f"{stem.name}-{name}"))
    return written


def show(frame: "pd.DataFrame", out: Console) -> None:
    from analysis import report

    table = Table(box=None, header_style="bold", pad_edge=False)
    lines = report.lines(frame)
    for name in lines[0]:
        table.add_column(name, justify="left" if name in ("loader", "order", "output") else "right", no_wrap=True)
    for line in lines:
        table.add_row(*line.values())
    out.print()
    out.print(table, highlight=False)
    for note in report.footnotes(frame):
        out.print(note, highlight=False, markup=False)


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


def load(options: argparse.Namespace, out: Console) -> Dataset:
    with bar(f"making {options.dataset}", "cells", out) as progress:
        dataset = catalogue.load(options.dataset, options.labels, progress)
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
    dataset, folder = load(options, out), RESULTS / host.machine()
    with results.lock(folder):
        prepare_stores(dataset, set(loaders.NAMES), folder, out)


def status(options: argparse.Namespace) -> None:
    """Prints, for each results file, its rows by outcome and every doubt about them."""
    from analysis import doubts

    if not options.folder.is_dir():
        raise UserError(f"There is no results folder {options.folder}.")
    out = console()
    paths = sorted(path for path in options.folder.rglob("*.jsonl") if path.name != results.CONVERSIONS)
    if not paths:
        raise UserError(f"{options.folder} holds no results (*.jsonl).")
    for path in paths:
        rows = results.read(path)
        counts = {s: sum(m.status == s for m in rows) for s in results.STATUSES}
        said = ", ".join(f"{n} {s}" for s, n in counts.items() if n)
        out.print(f"{path}: {len(rows)} measurements ({said})", style="bold", highlight=False)
        groups: dict[object, list[results.Measurement]] = {}
        for m in rows:
            groups.setdefault((m.condition, m.timing, m.provenance.get("dataset_fingerprint")), []).append(m)
        told: dict[str, list[str]] = {}
        for (condition, _, _), group in groups.items():
            reasons = [f"{m.status}: {m.reason}" for m in group if m.status != "ok"]
            for doubt in {*reasons, *(d for m in group for d in doubts.of_row(m)), *doubts.of_repeats(group)}:
                told.setdefault(doubt, []).append(f"{condition.dataset} {condition}")
        for doubt, conditions in sorted(told.items(), key=lambda item: -len(item[1])):
            some = "; ".join(conditions[:3]) + (f"; and {len(conditions) - 3} more" if len(conditions) > 3 else "")
            out.print(f"  {len(conditions)} x {doubt}\n      {some}", highlight=False, markup=False, soft_wrap=True)


def validate(options: argparse.Namespace) -> int:
    """Prints every record that cannot be; 1 when there is one."""
    from harness import validate

    if not options.folder.is_dir():
        raise UserError(f"There is no results folder {options.folder}.")
    found = list(validate.problems(options.folder))
    for path, line, what in found:
        print(f"{path}, line {line}: {what}")
    lines = sum(len(path.read_bytes().splitlines()) for path in options.folder.rglob("*.jsonl"))
    print(f"{lines} records: {len(found) or 'no'} problem{'s' if len(found) != 1 else ''}")
    return 1 if found else 0


def examine(options: argparse.Namespace) -> int:
    """Prints what `doctor` finds; 1 when a loader that is installed does not import."""
    from harness import doctor

    found = doctor.examine()
    if options.json:
        print(json.dumps(found, indent=2))
    else:
        out = console()
        table = Table(box=None, header_style="bold", pad_edge=False)
        for name in ("loader", "version", "store", "", "environment", "reason"):
            table.add_column(name)
        for row in found["loaders"]:
            told = (row[key] or "" for key in ("name", "version", "store", "status", "environment", "reason"))
            table.add_row(*told)
        out.print(table)
        machine = found["machine"]
        out.print(
            f"\n{machine['cpu']}, {machine['cores']} cores, {machine['ram_bytes'] / 2**30:.0f} GB, Python "
            f"{machine['python']}\npage cache: {found['page_cache'] or 'cannot be emptied'}\n"
            f"bounded memory: {found['memory_bound'] or 'not to be had'}",
            highlight=False,
        )
    return 1 if any(row["status"] == "broken" for row in found["loaders"]) else 0


if __name__ == "__main__":
    sys.exit(main())
