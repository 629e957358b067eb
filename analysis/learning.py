"""What training has shown: scores and losses of every order, as a table and two figures."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis import published
from analysis.figures import COLOURS, STYLE, Drawn, uncommitted
from analysis.summary import interval
from harness.runs import ARMS, Run, curve_of

SMOOTH = 25  # minibatches of the running median
AROUND = 10  # minibatches before and after a boundary of plates that are compared
TESTS = {"iid": "cells held out of the plates trained on", "plate": "the last plate"}
MARKERS = {"linear": "o", "mlp": "^"}
ARM_COLOURS = dict(zip(ARMS, COLOURS, strict=True))

Curve = Mapping[str, np.ndarray]


def table(runs: Sequence[Run], folder: Path) -> pd.DataFrame:
    """A row a head, order and test set.

    macro_f1 and accuracy: medians over seeds; low, high: the 95 % bootstrap interval of macro_f1; least, most: of it.
    jump_nats: the loss of the 10 minibatches after a place where the stream goes from one plate to the next, less that
    of the 10 before, the mean over such places and the median over seeds; wobble_nats: how far the loss is from its
    running median over 25 minibatches, on average. dirty: some run is of uncommitted code.
    """
    places = boundaries(runs, folder)
    rows = []
    for arm in ARMS:
        mine = [run for run in runs if run.arm == arm]
        curves = [curve_of(folder, run) for run in mine]
        for head in mine[0].scores if mine else ():
            losses = [loss_of(curve, head) for curve in curves]
            for test in TESTS:
                f1 = np.array([run.scores[head][test]["macro_f1"] for run in mine])
                low, high = interval(f1)
                rows.append(
                    {
                        "arm": arm,
                        "head": head,
                        "kind": head.split(" ", 1)[0],
                        "task": head.split(" ", 1)[1],
                        "test": test,
                        "seeds": len(mine),
                        "macro_f1": np.median(f1),
                        "low": low,
                        "high": high,
                        "least": f1.min(),
                        "most": f1.max(),
                        "accuracy": np.median([run.scores[head][test]["accuracy"] for run in mine]),
                        "jump_nats": np.median([jump(loss, places) for loss in losses]),
                        "wobble_nats": np.median([np.abs(loss - smooth(loss)).mean() for loss in losses]),
                        "seconds": np.median([run.seconds for run in mine]),
                        "dirty": any(run.provenance.get("git_dirty") for run in mine),
                    }
                )
    return pd.DataFrame(rows)


def boundaries(runs: Sequence[Run], folder: Path) -> np.ndarray:
    """The minibatches with which the stream begins another plate; (0,) where no stream was trained on."""
    for run in runs:
        if run.arm == "stream":
            return np.flatnonzero(np.diff(curve_of(folder, run)["plates"])) + 1
    return np.empty(0, int)


def loss_of(curve: Curve, head: str) -> np.ndarray:
    """(minibatches,), nats."""
    return curve["losses"][:, list(curve["heads"]).index(head)]


def jump(loss: np.ndarray, places: np.ndarray) -> float:
    """See `jump_nats`; nan where there is no place far enough from both ends."""
    inside = [place for place in places if AROUND <= place <= len(loss) - AROUND]
    jumps = [loss[place : place + AROUND].mean() - loss[place - AROUND : place].mean() for place in inside]
    return float(np.mean(jumps)) if jumps else np.nan


def smooth(loss: np.ndarray) -> np.ndarray:
    """The running median, (minibatches,); of what there is near the ends."""
    return pd.Series(loss).rolling(SMOOTH, center=True, min_periods=1).median().to_numpy()


def markdown(frame: pd.DataFrame) -> str:
    """Macro-F1 by order and head on both test sets, and the drug loss's jumps, for a README."""
    heads = list(dict.fromkeys(frame["head"]))
    text = []
    for test, name in TESTS.items():
        text += [f"Macro-F1, {name}:\n", "| order | " + " | ".join(heads) + " |", "| --- |" + " ---: |" * len(heads)]
        for arm, rows in frame[frame["test"] == test].groupby("arm", sort=False):
            cells = rows.set_index("head").loc[heads]
            text.append(f"| {arm} | " + " | ".join(_score(row) for row in cells.itertuples()) + " |")
        text.append("")
    text += ["Jump of the loss where the stream changes plates, nats:\n"]
    text += ["| order | " + " | ".join(heads) + " |", "| --- |" + " ---: |" * len(heads)]
    for arm, rows in frame[frame["test"] == "iid"].groupby("arm", sort=False):
        cells = rows.set_index("head").loc[heads]
        text.append(f"| {arm} | " + " | ".join(f"{value:+.2f}" for value in cells["jump_nats"]) + " |")
    return "\n".join(text) + "\n"


def _score(row: object) -> str:
    """The median, and least and most over seeds."""
    return f"{row.macro_f1:.3f}" + (f" ({row.least:.3f} to {row.most:.3f})" if row.seeds > 1 else "")


@matplotlib.rc_context(STYLE)
def bars(frame: pd.DataFrame, dataset: str) -> Drawn:
    """Macro-F1 of each order, a panel a task and test set: the median, the range over seeds, and hollow what was
    published of the linear model on Tahoe-100M's last plate."""
    tasks = list(dict.fromkeys(frame["task"]))
    figure = Figure(figsize=(2.6 * len(tasks) + 1, 6.2), layout="constrained")
    axes = figure.subplots(len(TESTS), len(tasks), squeeze=False, sharex="col")
    theirs = published.training()
    arms = [arm for arm in ARMS if (frame["arm"] == arm).any()]
    for line, (test, name) in zip(axes, TESTS.items(), strict=True):
        for ax, task in zip(line, tasks, strict=True):
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
            ax.set_yticks(range(len(arms)), arms if ax is line[0] else [])
            ax.set_ylim(len(arms) - 0.5, -0.5)
            ax.grid(axis="x", lw=0.3)
            ax.set_title(task.replace("_", " "))
            ax.set_xlim(0, 1.06 * ax.get_xlim()[1])
        line[0].set_ylabel(f"tested on {name}", fontsize=8)
    handles = [Line2D([], [], marker=m, ls="", color="0.3", label=f"{kind}, here") for kind, m in MARKERS.items()]
    handles.append(Line2D([], [], marker="s", ls="", mfc="none", color="0.3", label="linear, published of Tahoe-100M"))
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    figure.suptitle(f"Macro-F1 after one epoch of {dataset}{uncommitted(frame['dirty'].any())}", fontsize=10)
    return Drawn(figure, frame[["task", "test", "kind", "arm", "macro_f1", "least", "most", "seeds"]])


@matplotlib.rc_context(STYLE)
def curves(runs: Sequence[Run], folder: Path, dataset: str, task: str = "drug") -> Drawn:
    """Loss of a task against minibatches, a panel a kind of model, a line an order: the running median of the first
    seed, and dashed where the stream goes from one plate to the next."""
    figure = Figure(figsize=(7.2, 5.6), layout="constrained")
    places, numbers = boundaries(runs, folder), []
    for ax, kind in zip(figure.subplots(len(MARKERS), 1, sharex=True), MARKERS, strict=True):
        for arm in ARMS:
            mine = sorted((run for run in runs if run.arm == arm), key=lambda run: run.seed)
            if mine:
                loss = smooth(loss_of(curve_of(folder, mine[0]), f"{kind} {task}"))
                ax.plot(loss, color=ARM_COLOURS[arm], lw=0.9, label=arm)
                at = np.arange(0, len(loss), SMOOTH // 2)
                numbers.append(pd.DataFrame({"kind": kind, "arm": arm, "minibatch": at, "loss_nats": loss[at]}))
        for place in places:
            ax.axvline(place, color="0.6", lw=0.5, ls="--", zorder=0)
        ax.set_ylabel(f"{kind}, nats")
    ax.set_xlabel("minibatches")
    handles, labels = ax.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    dirty = any(run.provenance.get("git_dirty") for run in runs)
    figure.suptitle(
        f"Loss on {task} in one epoch of {dataset}; dashed: the stream's next plate{uncommitted(dirty)}", fontsize=10
    )
    return Drawn(figure, pd.concat(numbers))
