"""What an epoch of an atlas takes, and what making a loader's own store costs: annbatch's Figures 2b and 2d."""

from collections.abc import Sequence

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

import loaders
from analysis import published, summary
from analysis.figures import COLOURS, STYLE, Drawn
from harness.dataset import Dataset
from harness.results import Conversion

ATLAS_CELLS = 100_648_790
"""Of Tahoe-100M."""


@matplotlib.rc_context(STYLE)
def epoch(frame: pd.DataFrame, dataset: str) -> Drawn | None:
    """Hours for 100 million cells in random order, a line a loader at its fastest setting, by output; hollow what
    annbatch's authors published of an epoch.

    frame: a table as `summary.table` makes it. None for fewer than five loaders.
    """
    rows = _at_random(frame)
    if rows["loader"].nunique() < 5:
        return None
    best = rows.groupby(["loader", "output"])["cells_per_s"].max().unstack()
    hours = (ATLAS_CELLS / best / 3600).sort_values(best.columns[0], na_position="first", ascending=False)
    theirs = published.annbatch_epochs()
    figure = Figure(figsize=(6.4, 0.26 * len(hours) + 1.4), layout="constrained")
    ax = figure.subplots()
    for colour, output in zip(COLOURS, hours.columns, strict=False):
        ax.plot(hours[output], range(len(hours)), "o", color=colour, ms=5, label=f"measured, {output}")
    for i, name in enumerate(hours.index):
        for seconds in theirs.loc[theirs["loader"] == name, "epoch_s"]:
            ax.plot(seconds / 3600, i, "s", mfc="none", color="0.3", ms=7)
    ax.set_yticks(range(len(hours)), hours.index)
    ax.set(xscale="log", xlabel="hours an epoch of 100 million cells, at this throughput")
    ax.grid(axis="x", lw=0.3)
    ax.plot([], [], "s", mfc="none", color="0.3", ms=7, label="published by annbatch's authors")
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    figure.suptitle(f"An epoch of an atlas, from what {dataset} gave", fontsize=10)
    numbers = hours.melt(ignore_index=False, value_name="hours").reset_index().dropna()
    return Drawn(figure, numbers)


@matplotlib.rc_context(STYLE)
def stores(conversions: Sequence[Conversion], frame: pd.DataFrame, dataset: Dataset) -> Drawn | None:
    """A line a store: cells converted a second, bytes a cell on disk, and cells/s read from it at random by
    its fastest loader; the files as they are for comparison, hollow what was published. None where none was made."""
    made = summary.stores_made(conversions, dataset)
    rows = _at_random(frame[frame["output"] == "csr"])
    fastest = rows.groupby(rows["loader"].map(lambda name: loaders.get(name).store))["cells_per_s"].max()
    if not made or len(fastest) < 2:
        return None
    numbers = pd.DataFrame(
        {
            "store": store,
            "made_of": made[store].loader if store in made else "",
            "converted_cells_per_s": dataset.n_cells / made[store].seconds if store in made else np.nan,
            "bytes_per_cell": (made[store].provenance["store_bytes"] if store in made else dataset.size_bytes)
            / dataset.n_cells,
            "random_cells_per_s": rate,
        }
        for store, rate in fastest.sort_values(ascending=False).items()
    )
    theirs = published.conversions()
    titles = {
        "converted_cells_per_s": "cells converted a second",
        "bytes_per_cell": "bytes a cell on disk",
        "random_cells_per_s": "cells/s read at random, csr",
    }
    figure = Figure(figsize=(9.6, 0.3 * len(numbers) + 1.5), layout="constrained")
    for ax, (column, title) in zip(figure.subplots(1, 3, sharey=True), titles.items(), strict=True):
        ax.barh(range(len(numbers)), numbers[column], color=COLOURS[0])
        if column == "converted_cells_per_s":
            for i, row in enumerate(numbers.itertuples()):
                for other in theirs[
                    (theirs["loader"] == row.made_of) & (theirs["what"] == "h5ad to zarr")
                ].itertuples():
                    ax.plot(other.cells / other.seconds, i, "s", mfc="none", color="k", ms=6)
        ax.set_title(title, fontsize=9)
        if column == "random_cells_per_s":  # the others are within a few times of each other
            ax.set_xscale("log")
        else:
            ax.xaxis.set_major_locator(MaxNLocator(4))
        ax.set_yticks(range(len(numbers)), numbers["store"])
    figure.axes[0].invert_yaxis()
    figure.suptitle(f"Stores of {dataset.name}; hollow: published by annbatch's authors", fontsize=10)
    return Drawn(figure, numbers)


def _at_random(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows measured from a cold cache in random order, of loaders that do not hold all cells."""
    rivals = ~frame["loader"].map(loaders.holds_all).astype(bool)
    return frame[rivals & (frame["order"] == "random") & (frame["cache"] == "cold") & frame["cells_per_s"].notna()]
