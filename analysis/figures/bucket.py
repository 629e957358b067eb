"""Cells/s from a bucket over the time to the first byte and over the link, and of every loader behind one link."""

from itertools import cycle

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullLocator

from analysis.figures.style import COLOURS, STYLE, Drawn, uncommitted
from analysis.tables import compare, summary
from harness.condition import FEWEST_FETCHES

MARKERS = ("o", "s", "^", "D", "v", "P")
OTHERS = "0.35"
"""The colour of the settings that were measured behind one link only."""


@matplotlib.rc_context(STYLE)
def draw(frame: pd.DataFrame, dataset: str) -> Drawn | None:
    """Three panels: over the time to the first byte, over the link, and all settings behind the link of most loaders.

    Each setting's ceiling is drawn beside it: the rate of the link over the bytes that the setting receives for a cell.
    frame: a table of `summary.table` with all its links. None if none of its rows read a bucket behind a limited link,
    or none read it behind two. Rows with a limit on each connection are left out.
    """
    rows = _rows(frame)
    limited = rows[rows["link_mbps"].notna()]
    if limited.empty or rows.groupby("loader")["disk"].nunique().max() < 2:
        return None
    (mbps, ttfb_ms), _ = max(limited.groupby(["link_mbps", "ttfb_ms"]), key=lambda part: part[1]["setting"].nunique())
    here = rows[(rows["link_mbps"] == mbps) & (rows["ttfb_ms"] == ttfb_ms)].sort_values("cells_per_s")
    by_time = _varied(rows[rows["link_mbps"] == mbps], "ttfb_ms")
    by_link = _varied(rows[(rows["ttfb_ms"] == ttfb_ms) | rows["link_mbps"].isna()], "disk")
    names = dict.fromkeys([*by_time["setting"], *by_link["setting"]])
    looks = dict(zip(names, zip(cycle(COLOURS), cycle(MARKERS), strict=False), strict=False))
    figure = Figure(figsize=(8.2, 0.23 * len(here) + 4.9), layout="constrained")
    parts = figure.subfigures(2, 1, height_ratios=[3.7, 0.23 * len(here) + 1.3])
    over_time, over_link = parts[0].subplots(1, 2, sharey=True)
    _lines(over_time, by_time, "ttfb_ms", looks)
    times = sorted(by_time["ttfb_ms"].unique())
    over_time.set(title=f"link of {mbps:,g} Mbit/s", xlabel="time to the first byte, ms", ylabel="cells/s")
    over_time.set(xscale="log" if all(times) else "linear")
    over_time.set_xticks(times, [f"{ms:g}" for ms in times])
    over_time.minorticks_off()
    places = by_link.assign(order=by_link["link_mbps"].fillna(float("inf"))).sort_values(["order", "ttfb_ms"])
    links = list(dict.fromkeys(places["disk"]))
    _lines(over_link, by_link.assign(place=by_link["disk"].map(links.index)), "place", looks)
    over_link.set(title=f"{ttfb_ms:g} ms to the first byte", xlabel="link, Mbit/s", xlim=(-0.3, len(links) - 0.7))
    over_link.set_xticks(range(len(links)), [_link(places[places["disk"] == name].iloc[0], ttfb_ms) for name in links])
    for ax in (over_time, over_link):
        ax.set_yscale("log")
        _rates(ax.yaxis)
    ax = parts[1].subplots()
    _dots(ax, here, looks)
    ax.set(title=f"those that read objects, {mbps:,g} Mbit/s, {ttfb_ms:g} ms", xlabel="cells/s")
    handles = [
        Line2D([], [], color=colour, marker=marker, ms=5, label=name) for name, (colour, marker) in looks.items()
    ]
    handles.append(Line2D([], [], color=OTHERS, ls="--", marker="_", lw=0.9, label="what the link allows"))
    parts[0].legend(handles=handles, loc="outside lower center", ncols=3, frameon=False)
    figure.suptitle(
        f"Loaders on {dataset} in a bucket, (block size, fetch factor)" + uncommitted(rows["dirty"].any()), fontsize=10
    )
    columns = ["loader", "setting", "link_mbps", "ttfb_ms", "cells_per_s", "low_cells_per_s", "high_cells_per_s"]
    columns += ["repeats", "fetches", "received_bytes_per_cell", "link_cells_per_s"]
    return Drawn(figure, rows.sort_values(columns[:4])[columns])


def _rows(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows that read a bucket, with what they read it through, and the rate that the link allows them."""
    rows = frame[frame["cells_per_s"].notna() & (frame["output"] == "csr") & (frame["order"] == "random")]
    from_bucket = [c.ttfb_ms is not None and c.connection_mbps is None for c in rows["condition"]]
    rows = rows.loc[np.array(from_bucket, bool)].copy()
    rows["setting"] = [f"{c.loader} {compare.setting(c)}".removesuffix(" defaults") for c in rows["condition"]]
    rows["ttfb_ms"] = [c.ttfb_ms for c in rows["condition"]]
    rows["link_mbps"] = pd.Series([c.link_mbps for c in rows["condition"]], rows.index, dtype=float)
    rows["received_bytes_per_cell"] = received = summary.read_bytes_per_cell(rows)
    rows["link_cells_per_s"] = rows["link_mbps"] * 1e6 / 8 / received.where(received > 0)
    return rows


def _varied(rows: pd.DataFrame, axis: str) -> pd.DataFrame:
    """The rows of the loaders that were measured at several values of a column."""
    return rows[rows.groupby("loader")[axis].transform("nunique") > 1]


def _lines(ax: Axes, rows: pd.DataFrame, axis: str, looks: dict[str, tuple[str, str]]) -> None:
    """A line for each setting, with its intervals over repeats, and its ceiling, dashed."""
    for setting, line in rows.sort_values(axis).groupby("setting", sort=False):
        colour, marker = looks[setting]
        ax.vlines(line[axis], line["low_cells_per_s"], line["high_cells_per_s"], color=colour, lw=1.4)
        ax.plot(line[axis], line["cells_per_s"], marker=marker, color=colour, ms=5, lw=1.4)
        ax.plot(line[axis], line["link_cells_per_s"], "_--", color=colour, ms=9, lw=0.9)


def _link(row: pd.Series, usual_ttfb_ms: float) -> str:
    """The label of a link, with the time to the first byte if that is another than the usual."""
    rate = "no limit" if pd.isna(row["link_mbps"]) else f"{row['link_mbps']:,g}"
    return rate if row["ttfb_ms"] == usual_ttfb_ms else f"{rate},\n{row['ttfb_ms']:g} ms"


def _dots(ax: Axes, rows: pd.DataFrame, looks: dict[str, tuple[str, str]]) -> None:
    """A dot for each setting, a bar at its ceiling, and, at the right, the share of it and the bytes for a cell."""
    ax.set_xscale("log")
    for place, row in enumerate(rows.to_dict("records")):
        colour, marker = looks.get(row["setting"], (OTHERS, "o" if compare.is_ours(row["loader"]) else "X"))
        ax.plot([row["low_cells_per_s"], row["high_cells_per_s"]], [place, place], color=colour, lw=1.4)
        ax.plot(row["cells_per_s"], place, marker, color=colour, ms=5)
        if row["link_cells_per_s"] > 0:
            ax.plot([row["cells_per_s"], row["link_cells_per_s"]], [place, place], "--", color=colour, lw=0.9)
            ax.plot(row["link_cells_per_s"], place, "|", color=colour, ms=9, mew=1.4)
            share = row["cells_per_s"] / row["link_cells_per_s"]
            note = f"{share * 100:.0f} % of the link, {row['received_bytes_per_cell'] / 1000:.1f} kB a cell"
            ax.annotate(
                note, (1, place), (5, 0), xycoords=ax.get_yaxis_transform(), textcoords="offset points", va="center"
            )
    few = (rows["fetches"] < FEWEST_FETCHES).map({True: "*", False: ""})
    ax.set_yticks(range(len(rows)), rows["setting"] + few)
    _rates(ax.xaxis)


def _rates(axis: Axis) -> None:
    """Ticks of a logarithmic axis at 1 and 3 times the powers of ten, in full, with lines across the panel."""
    axis.set_major_locator(LogLocator(subs=(1, 3)))
    axis.set_major_formatter("{x:,.0f}")
    axis.set_minor_locator(NullLocator())
    axis.grid(lw=0.3)
    axis.axes.set_axisbelow(True)
