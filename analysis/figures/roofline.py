"""Roofline plot: cells/s against the bytes read from the disk for each cell, under the machine's ceilings."""

from collections.abc import Sequence
from itertools import cycle

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import loaders
from analysis.figures.style import COLOURS, STYLE, Drawn
from analysis.tables.ceilings import best_disk
from harness.data.dataset import Dataset
from harness.records.ceiling import Ceiling

MARKERS = {"random": "o", "stream": "s"}
APART = 1.4  # smallest ratio of the heights of two loaders' names
LEAST_BYTES = 10.0  # per cell; conditions that read fewer from the disk read from memory and are drawn at the left edge


@matplotlib.rc_context(STYLE)
def draw(frame: pd.DataFrame, ceilings: Sequence[Ceiling], dataset: Dataset) -> Drawn | None:
    """One panel for each output, one point for each condition that has a ceiling.

    The colour shows the store. A store without measured ceilings is grey; its points use those of another store.
    Each loader's name is at its fastest condition.
    Slanted lines: the disk, sequential and random. Horizontal lines: our decoder's rate with each store, and copying.

    frame: a table returned by `summary.table`. None if no condition has a ceiling.
    """
    frame = frame[frame["share_of_ceiling"].notna() & frame["disk_bytes_per_cell"].notna()]
    if frame.empty:
        return None
    frame = frame.assign(
        store=[loaders.get(name).store for name in frame["loader"]],
        bytes=frame["disk_bytes_per_cell"].clip(lower=LEAST_BYTES),
    )
    cores = frame["cores"].max()
    latest = {
        c.store: c
        for c in ceilings
        if c.provenance.get("dataset_fingerprint") == dataset.fingerprint
        and c.cores == (c.provenance["cores"] if np.isnan(cores) else cores)
    }
    if not latest:
        return None
    colours = dict(zip(latest, cycle(COLOURS), strict=False))
    outputs = sorted(frame["output"].unique())
    figure = Figure(figsize=(5.4 * len(outputs), 5.4), layout="constrained")
    left, right = LEAST_BYTES / 1.6, max(1e5, frame["bytes"].max() * 8)  # leaves room for a name
    x = np.geomspace(left, right, 100)
    axes = figure.subplots(1, len(outputs), squeeze=False, sharey=True)[0]
    for ax, output in zip(axes, outputs, strict=True):
        panel = frame[frame["output"] == output]
        for order, style in (("sequential", "-"), ("random", "--")):
            rate = np.median([best_disk(c, order) for c in latest.values()])
            ax.plot(x, rate / x, style, color="0.5", lw=1, label=f"disk, {order}: {rate / 1e9:.1f} GB/s")
        copy = max(c.copy_cells_per_s[output] for c in latest.values())
        ax.axhline(copy, color="0.5", lw=1, ls=":", label=f"copying: {copy:,.0f} cells/s")
        for store, of_store in panel.groupby("store"):
            colour = colours.get(store, "0.4")
            if store in latest and (decode := latest[store].decode_cells_per_s):
                ax.axhline(decode, color=colour, lw=1, label=f"our decoder, {store}: {decode:,.0f} cells/s")
            for order, marker in MARKERS.items():
                points = of_store[of_store["order"] == order]
                ax.plot(points["bytes"], points["cells_per_s"], marker, color=colour, ms=5, alpha=0.8, mew=0)
            if store in latest:
                ax.plot([], [], "o", color=colour, ms=4, label=store)
        best = panel.loc[panel.groupby("loader")["cells_per_s"].idxmax()].sort_values("cells_per_s")
        name_height = 0.0
        for row in best.itertuples():
            name_height = max(row.cells_per_s, name_height * APART)
            ax.annotate(
                row.loader, (row.bytes, row.cells_per_s), (row.bytes * 1.3, name_height), fontsize=7, va="center",
                arrowprops={"arrowstyle": "-", "lw": 0.4, "color": "0.6"},
            )  # fmt: skip
        ax.set(xscale="log", yscale="log", xlim=(left, right), title=output, xlabel="bytes from the disk per cell")
        ax.legend(fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.13), frameon=False, ncols=2)
    top = max(rate for c in latest.values() for rate in c.copy_cells_per_s.values())
    axes[0].set_ylim(frame["cells_per_s"].min() / 2, 2 * top)
    axes[0].set_ylabel("cells/s")
    figure.suptitle(f"Roofline of {dataset.name}; circles: random order, squares: stream", fontsize=10)
    columns = ["output", "loader", "order", "disk_bytes_per_cell", "cells_per_s", "ceiling_cells_per_s", "binds"]
    return Drawn(figure, frame.sort_values([*columns[:3], "cells_per_s"])[columns])
