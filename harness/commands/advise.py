"""`advise`: the fastest loader and settings for a data set, and the code to use them."""

import argparse
from contextlib import closing

import loaders
from harness.commands.bench import measure
from harness.commands.common import load, print_table
from harness.commands.display import console
from harness.data import catalogue
from harness.data.dataset import Dataset
from harness.errors import UserError, unknown
from harness.grids import grid_names, grid_of
from harness.machine.lock import lock
from harness.records import jsonl
from harness.run.stores import store_path

NO_LABELS = (
    "It has no label column, so the diversity of minibatches was not judged; these are the fastest settings. In "
    "sorted files, blocks of neighbouring cells make minibatches less diverse; --labels names the columns of obs by "
    "which to judge."
)


def advise(options: argparse.Namespace) -> None:
    """Makes the missing measurements; prints the settings with diverse enough minibatches, and code for the fastest."""
    import pandas as pd

    from analysis import advise

    for name in options.loaders or ():
        if name not in loaders.NAMES:
            raise unknown("loader", name, loaders.NAMES)
    out = console()
    dataset = load(options.dataset, options.labels, out)
    with lock(options.results):
        for name in options.grid or catalogue.grids(options.dataset):
            measure(grid_of(name, dataset), dataset, options.results, options, out)
    frames = [advise.candidates(frame, dataset, options.results) for frame in tables(dataset, options)]
    frames = [frame for frame in frames if len(frame)]
    if not frames:
        raise UserError(f"{options.results} has no measurement of {dataset.name} in random order that succeeded.")
    rows = pd.concat(frames).drop_duplicates("condition", keep="last")
    chosen = advise.choose(rows, options.within)
    if chosen.empty:
        nearest = rows.loc[rows["short_bits"].idxmin()]
        raise UserError(
            f"None of the {len(rows)} settings measured is within {options.within:g} bits of random for every label. "
            f"The nearest is {nearest['condition']}, {nearest['short_bits']:.3f} bits short for {nearest['worst']}: "
            f"--within {nearest['short_bits'] + 0.001:.3f} accepts it."
        )
    lines = advise.lines(chosen)
    print_table(lines, out)
    out.print()
    for column in lines[0]:
        if column in advise.EXPLAINED:
            out.print(f"{column}: {advise.EXPLAINED[column]}", highlight=False, markup=False)
    if "short_bits" in chosen:
        out.print(f"At most {options.within:g} bits short of random for every label (--within)", highlight=False)
    else:
        out.print(f"{dataset.name}: {NO_LABELS}", highlight=False, markup=False)
    out.print(_own_choice(dataset, options.within), highlight=False, markup=False)
    fastest = chosen.loc[chosen["cells_per_s"].idxmax(), "condition"]
    out.print(f"\nThe fastest, {fastest}:\n", style="bold", highlight=False, markup=False)
    program = advise.code(fastest, dataset, options.dataset, store_path(dataset, fastest.loader))
    out.print(program, highlight=False, markup=False, soft_wrap=True)


def _own_choice(dataset: Dataset, within: float) -> str:
    """What our loader chooses by itself if no block and no fetch are stated, by the same labels."""
    from loadstone import BlockLoader, BlockShuffling, open_h5ad

    labels = {name: dataset.labels(name) for name in dataset.label_names}
    with closing(BlockLoader(open_h5ad(dataset.paths), sampler=BlockShuffling(within=within), labels=labels)) as loader:
        block, fetch = loader.sampler.block_size, loader.fetch_rows // loader.batch_size
    return f"Without a stated block and fetch, BlockLoader chooses block {block} and fetch factor {fetch} (in 1 GB)."


def tables(dataset: Dataset, options: argparse.Namespace) -> list:
    """The summary tables (DataFrames) of this data set, one for each grid in which it was measured."""
    from analysis.tables import summary

    frames = []
    for name in grid_names():
        measured = summary.measured_on(dataset.name, jsonl.read(options.results / f"{name}.jsonl"))
        if any(m.condition.accelerator_ms is None for m in measured):
            grid = grid_of(name, dataset)
            if any(summary.rows_of(grid, dataset, measured).values()):
                frames.append(summary.table(grid, dataset, measured, [], [], options.results))
    return frames
