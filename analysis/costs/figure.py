"""Dollars an epoch by loader: of one node that loads, and with the GPUs that are fed."""

import matplotlib
import pandas as pd
from matplotlib.figure import Figure

from analysis.costs.model import Scenario
from analysis.costs.table import title
from analysis.figures.style import COLOURS, STYLE, Drawn


@matplotlib.rc_context(STYLE)
def draw(frame: pd.DataFrame, dataset: str, one: Scenario) -> Drawn:
    """For each loader, the dollars of an epoch on one node alone, and those with the GPUs that it feeds.

    frame: as `table.table` returns it for the scenario `one`. The rows of its first regime, disk and link are drawn;
    the numbers are all of it.
    """
    columns = ["cache", "disk", "link_mbps", "ttfb_ms"]
    _, rows = next(iter(frame.groupby(columns, sort=False, dropna=False)))
    rows = rows.sort_values("alone_usd", ascending=False)
    gpus = one.gpus
    figure = Figure(figsize=(7.2, 0.27 * len(rows) + 1.5), layout="constrained")
    ax = figure.subplots()
    places = range(len(rows))
    ax.plot(rows["alone_usd"], places, "o", color=COLOURS[0], ms=5, label="loading alone, on one node")
    if rows["requests_usd"].notna().any():
        ax.plot(rows["requests_usd"], places, "|", color=COLOURS[2], ms=9, mew=1.6, label="of it requests")
    if gpus:
        ax.plot(
            rows["usd"], places, "D", color=COLOURS[1], ms=5, ls="", label=f"with {gpus} GPUs and the nodes they need"
        )
    for place, row in zip(places, rows.to_dict("records"), strict=True):
        if gpus and row["producers"] > 1:
            note = f"{row['producers']:,.0f} nodes"
            ax.annotate(note, (row["usd"], place), xytext=(6, 0), textcoords="offset points", va="center", fontsize=7)
    several = rows["loader"].duplicated().any()
    ax.set_yticks(places, [_name(row, several) for row in rows.to_dict("records")])
    ax.set(xscale="log", xlabel=f"USD an epoch of {one.cells:,.0f} cells, without storage and conversion")
    if not rows["admitted"].all():
        ax.set_xlabel(f"{ax.get_xlabel()}\n¶: no setting is as diverse as a comparison demands, or it is not known")
    ax.set_ylim(-0.6, len(rows) - 0.4)
    ax.set_xlim(right=3 * max(rows["alone_usd"].max(), rows["usd"].max()))
    ax.grid(axis="x", lw=0.3)
    ax.set_axisbelow(True)
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    ax.xaxis.set_major_formatter("{x:g}")
    regime = title(*rows[columns].iloc[0]).replace("`", "")
    figure.suptitle(f"Dollars an epoch by the rates on {dataset}\n{regime}", fontsize=9.5)
    return Drawn(figure, frame)


def _name(row: dict, with_setting: bool) -> str:
    """A loader, with its setting if loaders have several, and the mark of one that is not known to be diverse."""
    setting = f" {row['setting']}" if with_setting and row["setting"] != "defaults" else ""
    return row["loader"] + setting + " ¶" * (not row["admitted"])
