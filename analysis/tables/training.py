"""Scores and losses of the models that were trained in each order of the cells."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from analysis.tables.summary import interval
from harness.records.training import ARMS, Run, curve_of

SMOOTH = 25  # minibatches of the running median
AROUND = 10  # minibatches before and after a boundary of plates that are compared
TESTS = {"iid": "cells held out of the plates trained on", "plate": "the last plate"}

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
