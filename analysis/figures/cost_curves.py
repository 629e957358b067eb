"""Figure of the cost per cell by the number of cells handled at once, beside the values published for SLAF."""

from collections.abc import Sequence
from itertools import cycle

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis import published
from analysis.figures.style import COLOURS, STYLE, Drawn, uncommitted
from harness.records.cost import PHASES, Cost


@matplotlib.rc_context(STYLE)
def draw(costs: Sequence[Cost], dataset: str) -> Drawn:
    """One panel for each law, with medians and ranges over repeats; the law "ladder" (five phases) only with medians.

    Hollow: values published by SLAF's authors.
    """
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
    titles = {"ranking": "ranking genes", "shuffling": "shuffling cells", "reading": "reading consecutive cells"}
    for ax, (law, title) in zip(axes, (titles | {"fitting": "a training step"}).items(), strict=False):
        for colour, (method, curve) in zip(cycle(COLOURS), rows[rows["law"] == law].groupby("method"), strict=False):
            ax.plot(curve["size"], curve["us_per_cell"], "o-", color=colour, ms=4, lw=1, label=method)
            ax.fill_between(curve["size"], curve["least"], curve["most"], color=colour, alpha=0.15, lw=0)
        slaf = theirs[theirs["law"] == law]
        if len(slaf):
            ax.plot(
                slaf["size"], slaf["us_per_cell"], "s--", mfc="none", color="0.3", ms=5, lw=0.8, label="SLAF, published"
            )
        ax.set(xscale="log", yscale="log", title=title, xlabel="cells at once", ylabel="us per cell")
        ax.legend(fontsize=7, frameon=False)
    ladder = rows[rows["law"] == "ladder"].sort_values("size")
    ax = axes[4]
    ax.barh(ladder["size"], 1e6 / ladder["us_per_cell"], color=COLOURS[0])
    slaf = theirs[theirs["law"] == "ladder"]
    ax.plot(slaf["cells_per_s"], slaf["size"], "s", mfc="none", color="0.3", ms=6)
    ax.set_yticks(ladder["size"], [f"{size}" for size in ladder["size"]])
    ax.set(xscale="log", xlabel="cells/s", title="the five phases, on h5ad")
    ax.invert_yaxis()
    axes[5].axis("off")
    text = "\n".join(f"{phase}  {name}" for phase, name in enumerate(PHASES))
    axes[5].text(0, 0.9, text + "\n\nsquares: published for SLAF, on Lance tables", va="top", fontsize=7)
    dirty = uncommitted(any(cost.provenance.get("git_dirty") for cost in costs))
    figure.suptitle(f"Cost of a cell of {dataset} by the number of cells handled at once{dirty}", fontsize=10)
    return Drawn(figure, rows)
