"""`train`: trains the same models on different orders of the cells, and compares them."""

import argparse
from collections.abc import Sequence
from importlib.util import find_spec
from itertools import product
from pathlib import Path

import h5py

from harness.commands.common import load, print_written
from harness.commands.display import bar, console
from harness.data.dataset import Dataset
from harness.errors import UserError, unknown
from harness.machine.lock import lock
from harness.records import jsonl
from harness.records.training import ARMS, FILE, Run
from harness.run.provenance import provenance

ALL = "all"


def train(options: argparse.Namespace) -> None:
    """Makes the missing training runs, one for each order and seed, and draws the scores and losses of all runs."""
    if options.seeds < 1:
        raise UserError(f"--seeds is {options.seeds}; it counts runs of each order, so at least 1.")
    if options.genes != ALL and not (options.genes.isdecimal() and int(options.genes)):
        raise UserError(f"--genes is {options.genes}; it is a number of genes, or {ALL}.")
    if reason := needs():
        raise UserError(reason)
    for arm in options.arms or ():
        if arm not in ARMS:
            raise unknown("order", arm, ARMS)
    from harness.experiments import training

    out = console()
    dataset = load(options.dataset, options.labels, out)
    tasks = tasks_of(dataset, training.TASKS)
    arms = options.arms or [arm for arm in ARMS if "weighted" not in arm or {"cell_line", "drug"} <= set(tasks)]
    genes = dataset.n_genes if options.genes == ALL else min(int(options.genes), dataset.n_genes)
    path = options.results / FILE
    with lock(options.results):
        completed = {run.key for run in jsonl.read(path, Run)}
        missing = [
            (seed, arm)
            for seed, arm in product(range(options.seeds), arms)
            if training.key_of(dataset, arm, seed, genes) not in completed
        ]
        out.print(
            f"{dataset.name}, {', '.join(tasks)}: {len(missing)} runs to make, each one epoch of a linear classifier "
            f"and a perceptron per task on {genes:,} genes; existing runs are not repeated.",
            highlight=False,
        )
        if missing:
            cells = training.Cells(dataset, tasks)
            chosen = cells.most_counted(genes)
        for number, (seed, arm) in enumerate(missing, start=1):
            title = f"[{number}/{len(missing)}] {arm}, seed {seed}"
            with bar(title, "minibatches", out) as progress:
                values = training.train(cells, chosen, arm, seed, options.results, progress)
            run = Run(dataset=dataset.name, arm=arm, seed=seed, provenance=provenance("native", dataset), **values)
            jsonl.append(path, run)
            scores = ", ".join(f"{head} {tests['iid']['macro_f1']:.3f}" for head, tests in run.scores.items())
            out.print(f"{title}: {run.seconds:.0f} s, macro-F1 {scores}", highlight=False)
    print_written([path, *publish(dataset, options.results, genes)], out)


def needs() -> str | None:
    """Why training cannot run in this environment; None if it can."""
    missing = [module for module in ("torch", "sklearn") if find_spec(module) is None]
    return f"Training needs {' and '.join(missing)}: EXTRAS=train make setup" if missing else None


def tasks_of(dataset: Dataset, known: Sequence[str]) -> tuple[str, ...]:
    """Those of `known` that are columns of obs. Raises UserError if there are none, or there is no column `plate`."""
    with h5py.File(dataset.paths[0]) as file:
        columns = set(file["obs"])
    tasks = tuple(task for task in known if task in columns)
    if "plate" not in columns or not tasks:
        raise UserError(
            f"{dataset.name} cannot be trained on: it needs a column plate in obs, whose last value is kept for "
            f"testing, and one or more of {', '.join(known)}."
        )
    return tasks


def publish(dataset: Dataset, folder: Path, genes: int | None = None) -> list[Path]:
    """Writes the table and figures of the runs on this data set with `genes` genes (None: as many as in the last run).

    Returns the paths of what was written.
    """
    from analysis.figures import training as figures
    from analysis.figures.style import save
    from analysis.tables import training as tables

    runs = [
        run
        for run in jsonl.read(folder / FILE, Run)
        if run.provenance.get("dataset_fingerprint") == dataset.fingerprint
    ]
    if not runs:
        return []
    runs = [run for run in runs if run.genes == (genes or runs[-1].genes)]
    stem = folder / "figures" / f"{dataset.name}-training"
    stem.parent.mkdir(exist_ok=True)
    frame = tables.table(runs, folder)
    table_md, table_csv = stem.with_name(f"{stem.name}-table.md"), stem.with_name(f"{stem.name}-table.csv")
    table_md.write_text(tables.markdown(frame))
    table_csv.write_text(frame.to_csv(index=False, float_format="%.6g"))
    drawn = {"f1": figures.bars(frame, dataset.name), "loss": figures.curves(runs, folder, dataset.name)}
    pictures = (save(figure, stem.with_name(f"{stem.name}-{name}")) for name, figure in drawn.items())
    return [table_md, table_csv, *(path for paths in pictures for path in paths)]
