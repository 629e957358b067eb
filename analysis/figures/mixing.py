"""Entropy of the labels in a minibatch against throughput."""

import matplotlib
import pandas as pd
from matplotlib.figure import Figure

from analysis.figures.style import COLOURS, STYLE, Drawn, uncommitted

MARKERS = {"random": "o", "stream": "s"}


@matplotlib.rc_context(STYLE)
def draw(mixed: pd.DataFrame, dataset: str) -> Drawn | None:
    """Entropy against throughput of CSR output, one panel for each label, with the level of random sampling.

    For each loader, a line joins the settings with random order. mixed: a table returned by
    `analysis.diversity.mixing.table`. None for fewer than three loaders or for several minibatch sizes.
    """
    rows = mixed[(mixed["output"] == "csr") & mixed["cells_per_s"].notna()] if len(mixed) else mixed
    if not len(rows) or rows["loader"].nunique() < 3 or rows["batch_size"].nunique() > 1:
        return None
    labels = list(dict.fromkeys(rows["label"]))
    figure = Figure(figsize=(3.6 * len(labels) + 1, 3.9), layout="constrained")
    names = list(rows.groupby("loader")["cells_per_s"].max().sort_values(ascending=False).index)
    for ax, label in zip(figure.subplots(1, len(labels), squeeze=False)[0], labels, strict=True):
        panel = rows[rows["label"] == label]
        ax.axhline(panel["random_bits"].iloc[0], color="0.5", lw=0.8, ls="--")
        for i, name in enumerate(names):
            of_loader = panel[panel["loader"] == name].sort_values("cells_per_s")
            colour, filled = COLOURS[i % len(COLOURS)], i < len(COLOURS)
            random = of_loader[of_loader["order"] == "random"]
            ax.plot(random["cells_per_s"], random["entropy_bits"], lw=0.4, color=colour)
            for order, marker in MARKERS.items():
                points = of_loader[of_loader["order"] == order]
                ax.plot(
                    points["cells_per_s"], points["entropy_bits"], marker, ls="", color=colour, ms=4.5, mew=0.9,
                    mfc=colour if filled else "none",
                )  # fmt: skip
            ax.plot([], [], "o", color=colour, mfc=colour if filled else "none", ms=4.5, label=name)
        ax.set(xscale="log", title=label, xlabel="cells/s")
    figure.axes[0].set_ylabel("entropy in a minibatch, bits")
    handles, texts = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, texts, loc="outside lower center", ncols=5, frameon=False, fontsize=7)
    title = f"Throughput and entropy on {dataset}; circles: random order, squares: stream, dashed: random sampling"
    figure.suptitle(title + uncommitted(rows["dirty"].any()), fontsize=9)
    columns = ["label", "loader", "order", "block_size", "fetch_factor", "other", "cells_per_s", "entropy_bits"]
    return Drawn(figure, rows[[*columns, "random_bits"]].sort_values(columns[:-1]))
