"""Throughput and entropy over block size and fetch factor: heat maps, and throughput as lines."""

from itertools import product

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis import published
from analysis.figures.style import RISING, STYLE, Drawn, uncommitted


def throughput(frame: pd.DataFrame, dataset: str) -> Drawn | None:
    """Heat maps of cells/s over block size and fetch factor. Text below them gives AnnLoader's rate in random order.

    frame: a table returned by `summary.table`. None if `_panels` returns no panel.
    """
    base = frame[(frame["loader"] == "annloader") & (frame["order"] == "random") & frame["cells_per_s"].notna()]
    rates = [f"{row.cells_per_s:,.0f} ({row.output})" for row in base.itertuples()]
    note = f"AnnLoader in random order: {', '.join(rates)}" if rates else ""
    return _heatmaps(frame, "cells_per_s", f"Throughput on {dataset}, cells/s", note, log=True)


def entropy(frame: pd.DataFrame, dataset: str) -> Drawn | None:
    """Heat maps of the entropy, in bits, of the data set's first label in a minibatch.

    Text below them gives the expectation for random sampling. frame: a table returned by `summary.table`. None if
    `_panels` returns no panel.
    """
    ideal = frame["ideal_bits"].dropna().unique()
    note = f"random sampling: {', '.join(f'{bits:.2f}' for bits in ideal)}"
    title = f"Entropy of {frame.attrs['label']} in a minibatch of {dataset}, bits"
    return _heatmaps(frame, "entropy_bits", title, note, log=False)


MOST_ACROSS = 4
"""Panels side by side."""
BACKENDS = {"native": "h5ad", "scdataset": "h5ad", "native_arrow": "arrow", "native_bionemo": "scdl"}
"""By loader, the store format ("backend") of the published scDataset measurements to compare it with."""


@matplotlib.rc_context(STYLE)
def _heatmaps(frame: pd.DataFrame, value: str, title: str, note: str, *, log: bool) -> Drawn | None:
    """`value` over block size (down) and fetch factor (across), one panel for each loader and output.

    note: text below the panels. log: a logarithmic colour scale. None if `_panels` returns no panel.
    """
    panels = _panels(frame, value)
    if not panels:
        return None
    values = np.concatenate([grid.to_numpy().ravel() for grid in panels.values()])
    low, high = np.nanmin(values), np.nanmax(values)
    norm = LogNorm(low, high) if log and low > 0 else Normalize(low, high)
    rows, columns = np.max([grid.shape for grid in panels.values()], axis=0)
    across, down = _layout(len(panels))
    size = (across * (0.62 * columns + 1.0) + 1.2, down * (0.42 * rows + 0.9) + 0.9)
    figure = Figure(figsize=size, layout="constrained")
    axes = _axes(figure, len(panels))
    for ax, (name, grid) in zip(axes, panels.items(), strict=True):
        image = _heatmap(ax, grid, norm, "{:,.0f}" if log else "{:.2f}")
        ax.set_title(name)
    for ax in axes[::across]:
        ax.set_ylabel("block size, cells")
    figure.colorbar(image, ax=axes, shrink=0.9)
    figure.supxlabel(note, fontsize=8)
    figure.suptitle(title + uncommitted(frame["dirty"].any()), fontsize=10)
    return Drawn(figure, _long(panels, value))


def _layout(panels: int) -> tuple[int, int]:
    """How many panels there are side by side, and in how many rows."""
    down = -(-panels // MOST_ACROSS)
    return -(-panels // down), down


def _axes(figure: Figure, panels: int, *, sharey: bool = False) -> list[Axes]:
    """The axes of the panels, row by row."""
    across, down = _layout(panels)
    every = list(figure.subplots(down, across, squeeze=False, sharey=sharey).flat)
    for unused in every[panels:]:
        unused.remove()
    return every[:panels]


def _panels(frame: pd.DataFrame, value: str) -> dict[str, pd.DataFrame]:
    """The panels by title; each is a table of `value` by block size (rows) and fetch factor (columns).

    There is one panel for each combination of loader, output, number of workers and number of cores that was measured
    at two or more block sizes and two or more fetch factors. If there is one, panels of the values published for
    scDataset follow. {} if there is none.
    """
    random = frame[(frame["order"] == "random") & frame["block_size"].notna() & frame[value].notna()]
    kinds = ["loader", "output", "workers", "cores"]
    cores_differ = random["cores"].nunique() > 1
    panels = {
        f"{loader}, {output}"
        + (f", {workers} workers" if workers else "")
        + (f", cores {cores:.0f}" if cores_differ and not np.isnan(cores) else ""): _pivot(panel, value)
        for (loader, output, workers, cores), panel in random.groupby(kinds, sort=True, dropna=False)
        if panel["block_size"].nunique() > 1 and panel["fetch_factor"].nunique() > 1
    }
    if not panels:
        return {}
    loaders = random["loader"].unique()
    for backend in sorted({BACKENDS[name] for name in loaders if name in BACKENDS}):
        theirs = _pivot(published.block_shuffling(backend), value)
        same = theirs.loc[theirs.index.isin(random["block_size"]), theirs.columns.isin(random["fetch_factor"])]
        if min(same.shape) > 1 and not random["workers"].any():
            panels[f"scdataset over {backend}, as published"] = same
    if random["workers"].any():
        for workers, rows in published.over_workers().items():
            panels[f"scdataset, {workers} workers, as published"] = _pivot(rows, value)
    return panels


def _long(panels: dict[str, pd.DataFrame], value: str) -> pd.DataFrame:
    """The panels in long format: columns panel, block_size, fetch_factor and `value`."""
    rows = [grid.stack().rename(value).reset_index().assign(panel=name) for name, grid in panels.items()]
    return pd.concat(rows)[["panel", "block_size", "fetch_factor", value]]


@matplotlib.rc_context(STYLE)
def lines(frame: pd.DataFrame, dataset: str) -> Drawn | None:
    """Cells/s against block size, one line for each fetch factor, in the panels of the heat maps; hollow: published.

    frame: a table returned by `summary.table`. None if `_panels` returns no panel.
    """
    panels = _panels(frame, "cells_per_s")
    if not panels:
        return None
    across, down = _layout(len(panels))
    figure = Figure(figsize=(2.7 * across + 0.8, 2.5 * down + 0.9), layout="constrained")
    axes = _axes(figure, len(panels), sharey=True)
    factors = sorted({factor for grid in panels.values() for factor in grid.columns})
    looks = dict(zip(factors, product("osD", RISING), strict=False))  # the second round of colours has other markers
    for ax, (name, grid) in zip(axes, panels.items(), strict=True):
        filled = None if "published" not in name else "none"
        for factor in grid.columns:
            marker, colour = looks[factor]
            ax.plot(grid.index, grid[factor], f"{marker}-", color=colour, mfc=filled or colour, ms=4, lw=1)
        ax.set(xscale="log", yscale="log", xlabel="block size, cells")
        ax.set_title(name.replace(", as", ",\nas"), fontsize=8)
        ax.set_xticks(grid.index, [f"{b:.0f}" for b in grid.index])
        ax.minorticks_off()
    for ax in axes[::across]:
        ax.set_ylabel("cells/s")
    handles = [
        Line2D([], [], color=colour, marker=marker, ms=4, lw=1, label=f"f = {factor:.0f}")
        for factor, (marker, colour) in looks.items()
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=7, frameon=False, fontsize=7)
    figure.suptitle(f"Throughput on {dataset}" + uncommitted(frame["dirty"].any()), fontsize=10)
    return Drawn(figure, _long(panels, "cells_per_s"))


def _pivot(panel: pd.DataFrame, value: str) -> pd.DataFrame:
    return panel.pivot_table(index="block_size", columns="fetch_factor", values=value, aggfunc="median")


def _heatmap(ax: Axes, grid: pd.DataFrame, norm: Normalize, text: str) -> object:
    """Draws one heat map with its values; returns the image. text: format of a value."""
    image = ax.imshow(grid.to_numpy(), norm=norm, cmap="viridis", aspect="auto")
    ax.set_xticks(range(grid.shape[1]), [f"{f:.0f}" for f in grid.columns])
    ax.set_yticks(range(grid.shape[0]), [f"{b:.0f}" for b in grid.index])
    ax.set_xlabel("fetch factor, minibatches")
    for (i, j), number in np.ndenumerate(grid.to_numpy()):
        if not np.isnan(number):
            dark = norm(number) < 0.6
            ax.text(
                j,
                i,
                text.format(number),
                ha="center",
                va="center",
                color="white" if dark else "black",
                fontsize=8,
            )
    return image
