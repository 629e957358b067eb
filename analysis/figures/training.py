"""Macro-F1 and loss of the models trained on each order of the cells."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis import published
from analysis.figures.style import COLOURS, STYLE, Drawn, uncommitted
from analysis.tables.training import SMOOTH, TESTS, boundaries, loss_of, smooth
from harness.records.training import ARMS, Run, curve_of

MARKERS = {"linear": "o", "mlp": "^"}
ARM_COLOURS = dict(zip(ARMS, COLOURS, strict=True))


@matplotlib.rc_context(STYLE)
def bars(frame: pd.DataFrame, dataset: str) -> Drawn:
    """Macro-F1 of each order, one panel for each task and test set: median and range over seeds.

    Hollow: published values of the linear model on Tahoe-100M's last plate. frame: a table returned by
    `analysis.tables.training.table`.
    """
    tasks = list(dict.fromkeys(frame["task"]))
    figure = Figure(figsize=(2.6 * len(tasks) + 1, 6.2), layout="constrained")
    axes = figure.subplots(len(TESTS), len(tasks), squeeze=False, sharex="col")
    theirs = published.training()
    arms = [arm for arm in ARMS if (frame["arm"] == arm).any()]
    for axes_row, (test, name) in zip(axes, TESTS.items(), strict=True):
        for ax, task in zip(axes_row, tasks, strict=True):
            for i, arm in enumerate(arms):
                for j, (kind, marker) in enumerate(MARKERS.items()):
                    row = frame.set_index(["arm", "head", "test"]).loc[(arm, f"{kind} {task}", test)]
                    error = [[row["macro_f1"] - row["least"]], [row["most"] - row["macro_f1"]]]
                    ax.errorbar(
                        row["macro_f1"], i + 0.3 * j - 0.15, xerr=error, fmt=marker, color=ARM_COLOURS[arm], ms=5, lw=1
                    )
                if test == "plate":
                    for value in theirs[(theirs["arm"] == arm) & (theirs["task"] == task)]["macro_f1"]:
                        ax.plot(value, i - 0.15, "s", mfc="none", color=ARM_COLOURS[arm], ms=8, mew=0.8)
            ax.set_yticks(range(len(arms)), arms if ax is axes_row[0] else [])
            ax.set_ylim(len(arms) - 0.5, -0.5)
            ax.grid(axis="x", lw=0.3)
            ax.set_title(task.replace("_", " "))
            ax.set_xlim(0, 1.06 * ax.get_xlim()[1])
        axes_row[0].set_ylabel(f"tested on {name}", fontsize=8)
    handles = [Line2D([], [], marker=m, ls="", color="0.3", label=f"{kind}, measured") for kind, m in MARKERS.items()]
    handles.append(Line2D([], [], marker="s", ls="", mfc="none", color="0.3", label="linear, published for Tahoe-100M"))
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    figure.suptitle(f"Macro-F1 after one epoch of {dataset}{uncommitted(frame['dirty'].any())}", fontsize=10)
    return Drawn(figure, frame[["task", "test", "kind", "arm", "macro_f1", "least", "most", "seeds"]])


@matplotlib.rc_context(STYLE)
def curves(runs: Sequence[Run], folder: Path, dataset: str, task: str = "drug") -> Drawn:
    """Loss of a task against minibatches, one panel for each kind of model and one line for each order.

    Shown is the running median for the first seed. Dashed lines: plate boundaries of the stream.
    """
    figure = Figure(figsize=(7.2, 5.6), layout="constrained")
    plate_starts, numbers = boundaries(runs, folder), []
    for ax, kind in zip(figure.subplots(len(MARKERS), 1, sharex=True), MARKERS, strict=True):
        for arm in ARMS:
            of_arm = sorted((run for run in runs if run.arm == arm), key=lambda run: run.seed)
            if of_arm:
                loss = smooth(loss_of(curve_of(folder, of_arm[0]), f"{kind} {task}"))
                ax.plot(loss, color=ARM_COLOURS[arm], lw=0.9, label=arm)
                steps = np.arange(0, len(loss), SMOOTH // 2)
                numbers.append(pd.DataFrame({"kind": kind, "arm": arm, "minibatch": steps, "loss_nats": loss[steps]}))
        for start in plate_starts:
            ax.axvline(start, color="0.6", lw=0.5, ls="--", zorder=0)
        ax.set_ylabel(f"{kind}, nats")
    ax.set_xlabel("minibatches")
    handles, labels = ax.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    dirty = any(run.provenance.get("git_dirty") for run in runs)
    title = f"Loss on {task}, one epoch of {dataset}; dashed: the stream's plate boundaries"
    figure.suptitle(title + uncommitted(dirty), fontsize=10)
    return Drawn(figure, pd.concat(numbers))
