"""Figure of the most emulated accelerators that each loader feeds."""

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis.figures.style import COLOURS, STYLE, Drawn, uncommitted
from analysis.tables.accelerators import ARM, arm

NONE = 0.5  # where a loader is drawn that feeds none, left of 1 on a logarithmic scale


@matplotlib.rc_context(STYLE)
def draw(frame: pd.DataFrame, dataset: str) -> Drawn | None:
    """A line for each loader and setting, and on it a dot for each arm; hollow: one core is busy. None without numbers.

    frame: as of `analysis.tables.accelerators.table`.
    """
    frame = frame[frame["accelerators"].notna()]
    if frame.empty:
        return None
    names = _names(frame)
    order = frame.assign(name=names).groupby("name")["accelerators"].max().sort_values(kind="stable").index
    place = {name: y for y, name in enumerate(order)}
    figure = Figure(figsize=(7.2, 1.4 + 0.21 * len(place)), layout="constrained")
    ax = figure.subplots()
    colours = dict(zip(sorted(frame["accelerator_ms"].unique()), COLOURS, strict=False))
    for (accelerator_ms, consumer), rows in frame.groupby(ARM):
        colour = colours[accelerator_ms]
        y = [place[name] for name in names[rows.index]]
        x = rows["accelerators"].clip(lower=NONE)
        low, high = (rows[side].fillna(rows["accelerators"]).clip(lower=NONE) for side in ("low", "high"))
        ax.hlines(y, low, high, color=colour, lw=1)
        face = "none" if consumer == "busy" else colour
        label = arm(accelerator_ms, consumer)
        ax.plot(x, y, "o", ms=7 if consumer == "busy" else 5, mfc=face, mec=colour, label=label)
    ax.axvline(NONE * np.sqrt(2), color="0.6", lw=0.8, ls=":")
    ax.set_xscale("log", base=2)
    ticks = [2**power for power in range(int(np.log2(max(2, frame["accelerators"].max()))) + 2)]
    ax.set_xticks([NONE, *ticks], ["none", *(f"{tick:,}" for tick in ticks)])
    ax.set_yticks(range(len(place)), list(place))
    ax.set(xlabel="accelerators fed at a utilisation of 90 % or more", ylim=(-0.7, len(place) - 0.3))
    ax.grid(lw=0.3)
    figure.legend(loc="outside lower center", ncols=4, frameon=False, title="a step of 240 cells an accelerator takes")
    figure.suptitle(f"Accelerators that one loader feeds: {dataset}{uncommitted(frame['dirty'].any())}", fontsize=10)
    return Drawn(figure, frame.drop(columns=["reason", "marks", "cool", "dirty"]))


def _names(frame: pd.DataFrame) -> pd.Series:
    """The loader of each row, with its setting if it has several."""
    several = frame.groupby("loader")["setting"].transform("nunique") > 1
    return frame["loader"].where(~several, frame["loader"] + " " + frame["setting"])
