"""Figure of what a consumer of a fleet receives while producers are killed."""

from collections.abc import Sequence

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis.figures.style import COLOURS, STYLE, Drawn, uncommitted
from harness.records.kills import Kills

WINDOW_S, STEP_S = 10.0, 0.5


@matplotlib.rc_context(STYLE)
def draw(runs: Sequence[Kills], dataset: str) -> Drawn:
    """Cells/s over time: a line for each run, and a dashed one of its colour for each kill of a producer.

    A rate is of the fetches that arrived in the WINDOW_S before a moment.
    """
    figure = Figure(figsize=(7.2, 3.8), layout="constrained")
    ax, numbers = figure.subplots(), []
    for run, colour in zip(sorted(runs, key=lambda run: run.producers), COLOURS, strict=False):
        rates = rates_of(run)
        label = f"{run.producers} producer{'s' if run.producers > 1 else ''}"
        ax.plot(rates["seconds"], rates["cells_per_s"], color=colour, lw=1.2, label=label)
        for kill in run.kills_s:
            ax.axvline(kill, color=colour, lw=0.9, ls="--", zorder=0)
        numbers.append(rates.assign(producers=run.producers))
    ax.set(xlabel="seconds since the first fetch came; dashed: a producer is killed", ylabel="cells/s")
    ax.set(xlim=(0, None), ylim=(0, None))
    ax.grid(lw=0.3)
    figure.legend(loc="outside lower center", ncols=len(runs), frameon=False)
    dirty = uncommitted(any(run.provenance.get("git_dirty") for run in runs))
    link = f"{runs[0].connection_mbps:g} Mbit/s a connection"
    figure.suptitle(f"A fleet loses producers: {dataset} from a bucket, {link}{dirty}", fontsize=10)
    return Drawn(figure, pd.concat(numbers)[["producers", "seconds", "cells_per_s"]])


def rates_of(run: Kills) -> pd.DataFrame:
    """Cells a second in the WINDOW_S before a moment, from the first full window on; the moments are STEP_S apart."""
    arrivals, received = np.array(run.arrivals_s), np.cumsum([0, *run.cells])
    seconds = np.arange(WINDOW_S, arrivals[-1] + STEP_S / 2, STEP_S)
    before, until = (received[np.searchsorted(arrivals, at, "right")] for at in (seconds - WINDOW_S, seconds))
    return pd.DataFrame({"seconds": seconds, "cells_per_s": (until - before) / WINDOW_S})
