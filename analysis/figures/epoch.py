"""The time of an epoch of an atlas, by loader: annbatch's Figure 2b."""

import matplotlib
import pandas as pd
from matplotlib.figure import Figure

import loaders
from analysis import published
from analysis.figures.style import COLOURS, STYLE, Drawn

ATLAS_CELLS = 100_648_790
"""Cells of Tahoe-100M."""


@matplotlib.rc_context(STYLE)
def epoch(frame: pd.DataFrame, dataset: str) -> Drawn | None:
    """Hours for 100 million cells in random order, a line a loader at its fastest setting, by output; hollow what
    annbatch's authors published of an epoch.

    frame: a table as `summary.table` makes it. None for fewer than five loaders.
    """
    rows = at_random(frame)
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


def at_random(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows measured from a cold cache in random order, of loaders that do not hold all cells."""
    rivals = ~frame["loader"].map(loaders.holds_all).astype(bool)
    return frame[rivals & (frame["order"] == "random") & (frame["cache"] == "cold") & frame["cells_per_s"].notna()]
