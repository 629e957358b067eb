"""Training, run by run: what is missing, a bar for each, a record of each, and the figures of all."""

import argparse
from collections.abc import Sequence
from importlib.util import find_spec
from itertools import product
from pathlib import Path

import h5py

from harness import results, runs
from harness.bench import load
from harness.dataset import Dataset
from harness.display import bar, console
from harness.errors import UserError, unknown
from harness.provenance import provenance

ALL = "all"


def train(options: argparse.Namespace) -> None:
    """Trains the same models in every order from every seed, and draws what came of it."""
    if options.seeds < 1:
        raise UserError(f"--seeds is {options.seeds}; it counts runs of each order, so at least 1.")
    if options.genes != ALL and not (options.genes.isdecimal() and int(options.genes)):
        raise UserError(f"--genes is {options.genes}; it is a number of genes, or {ALL}.")
    if reason := needs():
        raise UserError(reason)
    for arm in options.arms or ():
        if arm not in runs.ARMS:
            raise unknown("order", arm, runs.ARMS)
    from analysis import training

    out = console()
    dataset = load(options.dataset, options.labels, out)
    tasks = tasks_of(dataset, training.TASKS)
    arms = options.arms or [arm for arm in runs.ARMS if "weighted" not in arm or {"cell_line", "drug"} <= set(tasks)]
    genes = dataset.n_genes if options.genes == ALL else min(int(options.genes), dataset.n_genes)
    path = options.results / runs.FILE
    with results.lock(options.results):
        had = {run.key for run in results.read(path, runs.Run)}
        wanted = [
            (seed, arm)
            for seed, arm in product(range(options.seeds), arms)
            if training.key_of(dataset, arm, seed, genes) not in had
        ]
        out.print(
            f"{dataset.name}, {', '.join(tasks)}: {len(wanted)} runs to make, each an epoch of a linear classifier and "
            f"a perceptron a task on {genes:,} genes; what is there already is not made again.",
            highlight=False,
        )
        if wanted:
            cells = training.Cells(dataset, tasks)
            chosen = cells.most_counted(genes)
        for number, (seed, arm) in enumerate(wanted, start=1):
            with bar(f"[{number}/{len(wanted)}] {arm}, seed {seed}", "minibatches", out) as progress:
                found = training.train(cells, chosen, arm, seed, options.results, progress)
            run = runs.Run(dataset=dataset.name, arm=arm, seed=seed, provenance=provenance("native", dataset), **found)
            results.append(path, run)
            told = ", ".join(f"{head} {scores['iid']['macro_f1']:.3f}" for head, scores in run.scores.items())
            out.print(
                f"[{number}/{len(wanted)}] {arm}, seed {seed}: {run.seconds:.0f} s, macro-F1 {told}", highlight=False
            )
    written = publish(dataset, options.results, genes)
    out.print("\nWritten:", *(f"  {file}" for file in [path, *written]), sep="\n", highlight=False)


def needs() -> str | None:
    """Why nothing can be trained here; None where it can."""
    missing = [module for module in ("torch", "sklearn") if find_spec(module) is None]
    return f"Training needs {' and '.join(missing)}: EXTRAS=train make setup" if missing else None


def tasks_of(dataset: Dataset, known: Sequence[str]) -> tuple[str, ...]:
    """Those of the known tasks that the cells have labels of; UserError where nothing can be learnt of them."""
    with h5py.File(dataset.paths[0]) as file:
        columns = set(file["obs"])
    tasks = tuple(task for task in known if task in columns)
    if "plate" not in columns or not tasks:
        raise UserError(
            f"{dataset.name} cannot be trained on: it needs a column plate in obs, of whose values the last is kept "
            f"for testing, and one or more of {', '.join(known)}."
        )
    return tasks


def publish(dataset: Dataset, folder: Path, genes: int | None = None) -> list[Path]:
    """Writes table and figures of the runs on these cells and so many genes; None: as many as the last run had."""
    from analysis import figures, learning

    made = [
        run
        for run in results.read(folder / runs.FILE, runs.Run)
        if run.provenance.get("dataset_fingerprint") == dataset.fingerprint
    ]
    if not made:
        return []
    made = [run for run in made if run.genes == (genes or made[-1].genes)]
    stem = folder / "figures" / f"{dataset.name}-training"
    stem.parent.mkdir(exist_ok=True)
    frame = learning.table(made, folder)
    table_md, table_csv = stem.with_name(f"{stem.name}-table.md"), stem.with_name(f"{stem.name}-table.csv")
    table_md.write_text(learning.markdown(frame))
    table_csv.write_text(frame.to_csv(index=False, float_format="%.6g"))
    written = [table_md, table_csv]
    pictures = {"f1": learning.bars(frame, dataset.name), "loss": learning.curves(made, folder, dataset.name)}
    for name, drawn in pictures.items():
        written += figures.save(drawn, stem.with_name(f"{stem.name}-{name}"))
    return written
