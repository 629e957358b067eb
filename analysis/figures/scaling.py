"""Throughput, CPU time per cell and time to the first minibatch over one axis, all else equal."""

from collections.abc import Sequence
from itertools import cycle

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis.figures.style import COLOURS, STYLE, Drawn, uncommitted

AXES = {
    "batch_size": "cells in a minibatch",
    "buffer_rows": "rows in a buffer",
    "cores": "cores",
    "workers": "worker processes",
    "processes": "independent processes",
    "n_cells": "cells in the data set",
    "values_per_cell": "stored counts per cell",
}
LINEAR = ("cores", "workers", "processes")
PANELS = {
    "cells_per_s": "cells/s",
    "cpu_us_per_cell": "CPU time per cell, us",
    "start_s": "time to the first minibatch, s",
}
STYLES = {("random", "csr"): "o-", ("stream", "csr"): "s--", ("random", "dense"): "^:", ("stream", "dense"): "v-."}


@matplotlib.rc_context(STYLE)
def draw(frames: Sequence[pd.DataFrame], axis: str, title: str) -> Drawn | None:
    """One panel for each quantity, one line for each loader, order and output; cells/s with the interval over repeats.

    frames: tables returned by `summary.table`, one for each data set. axis: a key of AXES. None if the axis has only
    one value.
    """
    frame = pd.concat(frames, ignore_index=True)
    frame = frame[frame["cells_per_s"].notna() & frame[axis].notna()]
    if frame[axis].nunique() < 2:
        return None
    figure = Figure(figsize=(11, 3.6), layout="constrained")
    colours = dict(zip(sorted(frame["loader"].unique()), cycle(COLOURS), strict=False))
    for ax, (quantity, label) in zip(figure.subplots(1, len(PANELS)), PANELS.items(), strict=True):
        for (loader, order, output), line in frame.groupby(["loader", "order", "output"]):
            line = line.sort_values(axis)
            name = " ".join([loader, *([order] if frame["order"].nunique() > 1 else [])])
            name += f" {output}" if frame["output"].nunique() > 1 else ""
            style = STYLES[order, output]
            ax.plot(line[axis], line[quantity], style, color=colours[loader], ms=4, lw=1.2, label=name)
            if quantity == "cells_per_s" and line["low_cells_per_s"].notna().any():
                ax.fill_between(
                    line[axis].astype(float), line["low_cells_per_s"], line["high_cells_per_s"],
                    color=colours[loader], alpha=0.15, lw=0,
                )  # fmt: skip
        ax.set(yscale="log", xlabel=AXES[axis], title=label)
        if axis in LINEAR:
            ax.set_xticks(sorted(frame[axis].unique()))
        else:
            ax.set_xscale("log", base=10 if axis in ("n_cells", "values_per_cell") else 2)
            ax.set_xticks(sorted(frame[axis].unique()), [_short(v) for v in sorted(frame[axis].unique())])
            ax.minorticks_off()
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(6, len(labels)), frameon=False, fontsize=8)
    figure.suptitle(title + uncommitted(frame["dirty"].any()), fontsize=10)
    columns = ["loader", "order", "output", axis, *PANELS, "low_cells_per_s", "high_cells_per_s"]
    return Drawn(figure, frame.sort_values(columns[:4])[columns])


def _short(value: float) -> str:
    """The label of a tick: 10^n for powers of ten from 10,000 on, else a whole number as in 16,384."""
    power = np.log10(value)
    return f"$10^{power:.0f}$" if value >= 1e4 and abs(power - round(power)) < 1e-9 else f"{value:,.0f}"
