"""Bar chart of the throughput of every condition, to compare loaders."""

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from analysis import published
from analysis.figures.style import COLOURS, STYLE, Drawn, uncommitted, where

ORDER_COLOURS = {"random": COLOURS[0], "stream": COLOURS[-1]}


@matplotlib.rc_context(STYLE)
def bars(frame: pd.DataFrame, dataset: str) -> Drawn | None:
    """Cells/s of each condition on a logarithmic scale, one panel for each output, the fastest on top.

    Dotted lines: published training rates of models. frame: a table returned by `summary.table`, whose rows with tokens
    are left out. None for fewer than five loaders or more than 80 conditions.
    """
    frame = frame[frame["cells_per_s"].notna() & frame["tokens_per_s"].isna()]
    if frame["loader"].nunique() < 5 or len(frame) > 80:
        return None
    outputs = sorted(frame["output"].unique())
    cores_differ = frame["cores"].nunique() > 1
    tallest = frame["output"].value_counts().max()
    figure = Figure(figsize=(5.2 * len(outputs), 0.2 * tallest + 1.2), layout="constrained")
    for ax, output in zip(figure.subplots(1, len(outputs), squeeze=False, sharex=True)[0], outputs, strict=True):
        panel = frame[frame["output"] == output].sort_values("cells_per_s")
        names = [f"{row.loader}  {settings(row, cores_differ)}" for row in panel.itertuples()]
        ax.barh(range(len(panel)), panel["cells_per_s"], color=[ORDER_COLOURS[o] for o in panel["order"]])
        ax.set_yticks(range(len(panel)), names)
        ax.set_xscale("log")
        ax.set_xlim(frame["cells_per_s"].min() / 2, frame["cells_per_s"].max() * 10)
        ax.set_ylim(-0.6, len(panel) - 0.4)
        for i, rate in enumerate(panel["cells_per_s"]):
            ax.text(rate * 1.1, i, f"{rate:,.0f}", va="center", fontsize=7)
        for demand in published.demand()["cells_per_s"]:
            ax.axvline(demand, color="0.4", lw=0.6, ls=":", zorder=0)
        ax.set_title(output)
        ax.set_xlabel("cells/s")
    colours = {order: colour for order, colour in ORDER_COLOURS.items() if (frame["order"] == order).any()}
    handles = [Patch(color=colour, label=order) for order, colour in colours.items()]
    handles.append(Line2D([], [], color="0.4", lw=0.6, ls=":", label="published training rates of models"))
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False)
    figure.suptitle(f"Loaders on {dataset}{where(frame)}" + uncommitted(frame["dirty"].any()), fontsize=10)
    frame = frame.sort_values(["output", "cells_per_s"], ascending=[True, False])
    shown = [settings(row, cores_differ) for row in frame.itertuples()]
    numbers = frame[["output", "loader", "order", "cells_per_s"]].assign(settings=shown)
    return Drawn(figure, numbers)


def settings(row: object, cores_differ: bool) -> str:
    """The settings that distinguish a bar from others of its loader."""
    parts = [f"b={row.block_size:.0f}"] if not np.isnan(row.block_size) else []
    parts += [f"f={row.fetch_factor:.0f}"] if not np.isnan(row.fetch_factor) else []
    parts += [row.other] if row.other else []
    parts += [f"m={row.batch_size}"] if row.batch_size != 64 else []
    parts += [f"cores={row.cores:.0f}"] if cores_differ else []
    return " ".join(parts)
