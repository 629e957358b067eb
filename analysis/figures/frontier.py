"""The frontier of throughput and diversity: cells/s against bits short of random."""

from itertools import cycle

import matplotlib
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis.figures.style import STYLE, Drawn, uncommitted
from analysis.tables import compare
from analysis.tables.frontier import FLOOR, GROUPS, WITHIN, group, settings

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#5e3c99", "#7f7f7f")
SLOTS = 6
END = FLOOR / 2.1
MARKERS = ("s", "^", "D", "v", "P", "X", "<", ">")  # of the others; ours are large circles


@matplotlib.rc_context(STYLE)
def draw(frame: pd.DataFrame, mixed: pd.DataFrame, dataset: str) -> Drawn | None:
    """Every setting with CSR output as a faint dot; a line joins those of a loader that no other of it surpasses.

    The x axis is of the label that is furthest from random, and ends there. frame: a table of `summary.table` with one
    regime. mixed: as `mixing.table` returns it. None for fewer than three loaders, several minibatch sizes, or if no
    loader has several settings.
    """
    rows = settings(frame[frame["output"] == "csr"], mixed)
    if rows.empty or rows["loader"].nunique() < 3 or rows["batch_size"].nunique() > 1:
        return None
    if rows["loader"].value_counts().max() < 2:
        return None
    rows["x"] = _places(rows)
    figure = Figure(figsize=(9.2, 5.6), layout="constrained")
    ax = figure.subplots()
    ax.axvspan(END, WITHIN, color="0.95", zorder=0)
    ax.axvline(WITHIN, color="0.4", lw=0.8, ls="--", zorder=1)
    looks = _looks(rows)
    for name, of_loader in rows.groupby("loader"):
        look = looks[name]
        dots = {"ls": "", "color": look["color"], "zorder": 2}
        ax.plot(of_loader["x"], of_loader["cells_per_s"], ".", ms=5, alpha=0.35, mew=0, **dots)
        front = of_loader[of_loader["front"]].sort_values(["x", "cells_per_s"])
        ax.plot(front["x"], front["cells_per_s"], zorder=3, **look)
    ax.set(xscale="log", yscale="log", xlabel="bits short of random, for the label furthest from it", ylabel="cells/s")
    ax.set_xlim(max(0.3, 1.3 * rows["x"].max()), END)
    ticks = [tick for tick in (3, 1, 0.3, 0.1, 0.05, 0.02, FLOOR) if tick < 1.3 * rows["x"].max() or tick <= 0.3]
    ax.set_xticks(ticks, [f"{tick:g}" if tick > FLOOR else f"{FLOOR:g} or less" for tick in ticks])
    ax.minorticks_off()
    figure.legend(handles=_legend(rows, looks), loc="outside right upper", frameon=False, fontsize=7.5)
    title = f"Throughput and diversity on {dataset}; grey: within {WITHIN:g} bits of random"
    figure.suptitle(title + uncommitted(rows["dirty"].any()), fontsize=10)
    rows["setting"] = [compare.setting(condition) for condition in rows["condition"]]
    columns = ["group", "loader", "setting", "short_bits", "error_bits", "worst", "cells_per_s", "low_cells_per_s"]
    columns += ["high_cells_per_s", "buffer_bytes", "fetches", "front", "admitted"]
    return Drawn(figure, rows.sort_values(columns[:3])[columns])


def _places(rows: pd.DataFrame) -> pd.Series:
    """The places on the x axis. Loaders at the floor are side by side, those of nearly the same throughput apart."""
    at_floor = rows[rows["short_bits"] <= FLOOR]
    ranks = at_floor.groupby("loader")["cells_per_s"].max().rank(method="first") % SLOTS
    shift = 1 + ranks.reindex(rows["loader"]).fillna(0).to_numpy() / SLOTS
    return rows["short_bits"].where(rows["short_bits"] > FLOOR, FLOOR / shift)


def _looks(rows: pd.DataFrame) -> dict[str, dict[str, object]]:
    """How the line of each loader is drawn. No two of ours, and no two of the others, are the same."""
    names = sorted(rows["loader"].unique(), key=lambda name: (group(name), name))
    ours = [name for name in names if compare.is_ours(name)]
    others = [name for name in names if not compare.is_ours(name)]
    looks = {}
    for name, colour in zip(ours, cycle(COLOURS), strict=False):
        looks[name] = {"color": colour, "marker": "o", "ms": 6.5, "lw": 1.8}
    for i, name in enumerate(others):
        marker = MARKERS[(i + 3 * (i // len(COLOURS))) % len(MARKERS)]  # the second round of colours has other markers
        looks[name] = {"color": COLOURS[i % len(COLOURS)], "marker": marker, "ms": 5, "lw": 0.9, "mfc": "white"}
    return looks


def _legend(rows: pd.DataFrame, looks: dict[str, dict[str, object]]) -> list[Line2D]:
    """The loaders by group, the fastest of its settings first, with a heading for each group."""
    handles = []
    for name, heading in GROUPS.items():
        of_group = rows[rows["group"] == name]
        if of_group.empty:
            continue
        handles.append(Line2D([], [], ls="", label=f"$\\bf{{{heading.split(',')[0].replace(' ', '~')}}}$"))
        fastest = of_group.groupby("loader")["cells_per_s"].max().sort_values(ascending=False)
        handles += [Line2D([], [], label=loader, **looks[loader]) for loader in fastest.index]
    return handles
