"""Bar chart of the tokens that each loader delivers."""

import matplotlib
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from analysis.figures.bars import settings
from analysis.figures.style import COLOURS, STYLE, Drawn, uncommitted
from analysis.tables.compare import is_ours


@matplotlib.rc_context(STYLE)
def draw(frame: pd.DataFrame, dataset: str) -> Drawn | None:
    """Tokens/s without padding on a logarithmic scale, one panel for each encoding, the fastest on top.

    frame: a table returned by `summary.table`. None for fewer than three rows with tokens.
    """
    frame = frame[frame["tokens_per_s"].notna()]
    if len(frame) < 3:
        return None
    encodings = sorted(frame["output"].unique())
    tallest = frame["output"].value_counts().max()
    figure = Figure(figsize=(5.2 * len(encodings), 0.2 * tallest + 1.2), layout="constrained")
    for ax, encoding in zip(figure.subplots(1, len(encodings), squeeze=False, sharex=True)[0], encodings, strict=True):
        panel = frame[frame["output"] == encoding].sort_values("tokens_per_s")
        names = [f"{row.loader}  {settings(row, cores_differ=False)}" for row in panel.itertuples()]
        colours = [COLOURS[0] if is_ours(name) else COLOURS[-1] for name in panel["loader"]]
        ax.barh(range(len(panel)), panel["tokens_per_s"], color=colours)
        ax.set_yticks(range(len(panel)), names)
        ax.set_xscale("log")
        ax.set_xlim(frame["tokens_per_s"].min() / 2, frame["tokens_per_s"].max() * 10)
        ax.set_ylim(-0.6, len(panel) - 0.4)
        for i, rate in enumerate(panel["tokens_per_s"]):
            ax.text(rate * 1.1, i, f"{rate / 1e6:,.3g} M", va="center", fontsize=7)
        ax.set(title=encoding, xlabel="tokens/s without padding")
    handles = [Patch(color=COLOURS[0], label="ours"), Patch(color=COLOURS[-1], label="others")]
    figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False)
    figure.suptitle(f"Tokens on {dataset}" + uncommitted(frame["dirty"].any()), fontsize=10)
    frame = frame.sort_values(["output", "tokens_per_s"], ascending=[True, False])
    shown = [settings(row, cores_differ=False) for row in frame.itertuples()]
    return Drawn(figure, frame[["output", "loader", "tokens_per_s", "cells_per_s"]].assign(settings=shown))
