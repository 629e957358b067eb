"""Time of an epoch of an atlas, by loader, as in annbatch's Figure 2b."""

from itertools import cycle

import matplotlib
import pandas as pd
from matplotlib.figure import Figure

import loaders
from analysis import published
from analysis.figures.style import COLOURS, STYLE, Drawn, where

IF = {
    "warm": "if its store were in memory",
    "first": "read once from an empty page cache",
    "bounded": "with less memory than a quarter of the store",
}
ATLAS_CELLS = 100_648_790
"""Number of cells of Tahoe-100M."""


@matplotlib.rc_context(STYLE)
def epoch(frame: pd.DataFrame, dataset: str) -> Drawn | None:
    """Hours for an epoch of ATLAS_CELLS cells in random order, for each loader and output at its fastest setting.

    Hollow: epoch times published by annbatch's authors. frame: a table returned by `summary.table`. None for fewer than
    five loaders.
    """
    rows = at_random(frame)
    if rows["loader"].nunique() < 5:
        return None
    best = rows.groupby(["loader", "output"])["cells_per_s"].max().unstack()
    hours = (ATLAS_CELLS / best / 3600).sort_values(best.columns[0], na_position="first", ascending=False)
    theirs = published.annbatch_epochs()
    figure = Figure(figsize=(6.4, 0.26 * len(hours) + 1.4), layout="constrained")
    ax = figure.subplots()
    for colour, output in zip(cycle(COLOURS), hours.columns, strict=False):
        ax.plot(hours[output], range(len(hours)), "o", color=colour, ms=5, label=f"measured, {output}")
    for i, name in enumerate(hours.index):
        for seconds in theirs.loc[theirs["loader"] == name, "epoch_s"]:
            ax.plot(seconds / 3600, i, "s", mfc="none", color="0.3", ms=7)
    ax.set_yticks(range(len(hours)), hours.index)
    ax.set(xscale="log", xlabel="hours per epoch of 100 million cells at this throughput")
    ax.grid(axis="x", lw=0.3)
    ax.plot([], [], "s", mfc="none", color="0.3", ms=7, label="published by annbatch's authors")
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    (regime,) = rows["cache"].unique()
    figure.suptitle(
        f"Time of an epoch of an atlas at the throughput on {dataset},\n{IF[regime]}{where(rows)}", fontsize=10
    )
    numbers = hours.melt(ignore_index=False, value_name="hours").reset_index().dropna()
    return Drawn(figure, numbers)


def at_random(frame: pd.DataFrame) -> pd.DataFrame:
    """The table's rows in random order, without loaders that hold all cells in memory, or copies of a bucket."""
    rivals = ~frame["loader"].map(loaders.holds_all).astype(bool)
    copies = frame["loader"].map(loaders.keeps_copies).astype(bool) & frame["disk"].str.startswith("bucket")
    return frame[rivals & ~copies & (frame["order"] == "random") & frame["cells_per_s"].notna()]
