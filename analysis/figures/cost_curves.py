"""Microseconds a cell by how many cells are handled at once: SLAF's curves, and its five phases."""

from collections.abc import Sequence

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis import published
from analysis.figures.style import COLOURS, STYLE, Drawn, uncommitted
from harness.records.cost import PHASES, Cost


@matplotlib.rc_context(STYLE)
def draw(costs: Sequence[Cost], dataset: str) -> Drawn:
    """A panel a law, and the ladder: medians, and the range over repeats; hollow what SLAF's authors published."""
    rows = pd.DataFrame(
        {
            "law": cost.law,
            "method": cost.method,
            "size": cost.size,
            "us_per_cell": np.median(cost.us_per_cell),
            "least": min(cost.us_per_cell),
            "most": max(cost.us_per_cell),
        }
        for cost in costs
    ).sort_values(["law", "method", "size"], ignore_index=True)
    theirs = published.laws()
    figure = Figure(figsize=(10.5, 5.8), layout="constrained")
    axes = figure.subplots(2, 3).ravel()
    titles = {"ranking": "ranking genes", "shuffling": "shuffling cells", "reading": "reading cells in a row"}
    for ax, (law, title) in zip(axes, (titles | {"fitting": "a training step"}).items(), strict=False):
        for colour, (method, mine) in zip(COLOURS, rows[rows["law"] == law].groupby("method"), strict=False):
            ax.plot(mine["size"], mine["us_per_cell"], "o-", color=colour, ms=4, lw=1, label=method)
            ax.fill_between(mine["size"], mine["least"], mine["most"], color=colour, alpha=0.15, lw=0)
        other = theirs[theirs["law"] == law]
        if len(other):
            ax.plot(other["size"], other["us_per_cell"], "s--", mfc="none", color="0.3", ms=5, lw=0.8, label="SLAF's")
        ax.set(xscale="log", yscale="log", title=title, xlabel="cells at once", ylabel="us a cell")
        ax.legend(fontsize=7, frameon=False)
    ladder = rows[rows["law"] == "ladder"].sort_values("size")
    ax = axes[4]
    ax.barh(ladder["size"], 1e6 / ladder["us_per_cell"], color=COLOURS[0])
    other = theirs[theirs["law"] == "ladder"]
    ax.plot(other["cells_per_s"], other["size"], "s", mfc="none", color="0.3", ms=6)
    ax.set_yticks(ladder["size"], [f"{size}" for size in ladder["size"]])
    ax.set(xscale="log", xlabel="cells/s", title="the five phases, on h5ad")
    ax.invert_yaxis()
    axes[5].axis("off")
    text = "\n".join(f"{phase}  {name}" for phase, name in enumerate(PHASES))
    axes[5].text(0, 0.9, text + "\n\nsquares: SLAF's, on Lance tables", va="top", fontsize=7)
    dirty = uncommitted(any(cost.provenance.get("git_dirty") for cost in costs))
    figure.suptitle(f"What a cell of {dataset} costs by how many are handled at once{dirty}", fontsize=10)
    return Drawn(figure, rows)
