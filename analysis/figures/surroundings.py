"""The same settings under every regime and on every disk of a grid, side by side."""

import matplotlib
import pandas as pd
from matplotlib.figure import Figure

from analysis.figures.style import COLOURS, STYLE, Drawn, uncommitted
from analysis.tables import compare
from harness.condition import Condition

ORDER = ("hdd", "gp3", "nvme", "bounded", "first", "warm", "cold")
"""From the left: the disks, the slowest first; then the regimes, from the disk to memory."""


@matplotlib.rc_context(STYLE)
def draw(frame: pd.DataFrame, dataset: str) -> Drawn | None:
    """Cells/s on a logarithmic scale: a line for each setting of a loader, a dot for each disk, or else each regime.

    The line joins the slowest and the fastest of a setting's dots. A grid with several regimes on its disks has a line
    for each. frame: a table returned by `summary.table`, with all its regimes and disks. None for fewer than two of
    them.
    """
    frame = frame[frame["cells_per_s"].notna()].copy()
    on_disks = frame["disk"] != ""
    frame["under"] = frame["disk"].where(on_disks, frame["cache"])
    under = [name for name in ORDER if (frame["under"] == name).any()]
    if len(under) < 2:
        return None
    frame["setting"] = [_name(condition) for condition in frame["condition"]]
    if frame["cache"][on_disks].nunique() > 1:
        frame.loc[on_disks, "setting"] += ", " + frame["cache"]
    rates = frame.pivot(index="setting", columns="under", values="cells_per_s")[under]
    rates = rates.loc[rates[under[0]].fillna(rates.min(axis=1)).sort_values().index]
    figure = Figure(figsize=(8.2, 0.24 * len(rates) + 1.2), layout="constrained")
    ax = figure.subplots()
    ax.hlines(range(len(rates)), rates.min(axis=1), rates.max(axis=1), color="0.8", lw=1.2, zorder=1)
    for name, colour, marker in zip(under, COLOURS, "os^Dv*", strict=False):
        ax.plot(rates[name], range(len(rates)), marker, color=colour, ms=5, label=name)
    ax.set_yticks(range(len(rates)), rates.index, fontsize=7)
    ax.set(xscale="log", xlabel="cells/s", ylim=(-0.7, len(rates) - 0.3))
    ax.grid(axis="x", lw=0.3)
    figure.legend(loc="outside lower center", ncols=len(under), frameon=False)
    figure.suptitle(
        f"Loaders on {dataset}, (block size, fetch factor)" + uncommitted(frame["dirty"].any()), fontsize=10
    )
    return Drawn(figure, frame[["setting", "under", "cells_per_s"]])


def _name(condition: Condition) -> str:
    """The loader and what distinguishes the condition from others of it, except for regime and disk."""
    parts = [condition.loader, compare.setting(condition)]
    parts += [f"batch {condition.batch_size}"] if condition.batch_size != 64 else []
    parts += [value for value, usual in ((condition.order, "random"), (condition.form, "csr")) if value != usual]
    return " ".join(parts)
