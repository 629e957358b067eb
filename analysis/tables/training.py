"""Table of the scores and losses of the models trained on each order of the cells."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from analysis.tables.summary import interval
from harness.records.training import ARMS, Run, curve_of

SMOOTH = 25  # minibatches in the window of the running median
AROUND = 10  # minibatches compared before and after a plate boundary
TESTS = {"iid": "cells held out of the plates trained on", "plate": "the last plate"}

Curve = Mapping[str, np.ndarray]


def table(runs: Sequence[Run], folder: Path) -> pd.DataFrame:
    """One row for each order ("arm"), head and test set.

    macro_f1 and accuracy: medians over seeds. low, high: 95 % bootstrap interval of macro_f1. least, most: minimum and
    maximum of macro_f1 over seeds. jump_nats: mean loss of the 10 minibatches after a plate boundary of the stream
    minus that of the 10 before it; mean over boundaries, median over seeds. wobble_nats: mean absolute difference
    between the loss and its running median over 25 minibatches; median over seeds. seconds: median over seeds.
    dirty: whether some run used uncommitted code.

    folder: the machine's folder, with the recorded loss curves.
    """
    plate_starts = boundaries(runs, folder)
    rows = []
    for arm in ARMS:
        of_arm = [run for run in runs if run.arm == arm]
        curves = [curve_of(folder, run) for run in of_arm]
        for head in of_arm[0].scores if of_arm else ():
            losses = [loss_of(curve, head) for curve in curves]
            for test in TESTS:
                f1 = np.array([run.scores[head][test]["macro_f1"] for run in of_arm])
                low, high = interval(f1)
                rows.append(
                    {
                        "arm": arm,
                        "head": head,
                        "kind": head.split(" ", 1)[0],
                        "task": head.split(" ", 1)[1],
                        "test": test,
                        "seeds": len(of_arm),
                        "macro_f1": np.median(f1),
                        "low": low,
                        "high": high,
                        "least": f1.min(),
                        "most": f1.max(),
                        "accuracy": np.median([run.scores[head][test]["accuracy"] for run in of_arm]),
                        "jump_nats": np.median([jump(loss, plate_starts) for loss in losses]),
                        "wobble_nats": np.median([np.abs(loss - smooth(loss)).mean() for loss in losses]),
                        "seconds": np.median([run.seconds for run in of_arm]),
                        "dirty": any(run.provenance.get("git_dirty") for run in of_arm),
                    }
                )
    return pd.DataFrame(rows)


def boundaries(runs: Sequence[Run], folder: Path) -> np.ndarray:
    """Indices of the minibatches at which the stream starts a new plate; empty if no run has the arm "stream"."""
    for run in runs:
        if run.arm == "stream":
            return np.flatnonzero(np.diff(curve_of(folder, run)["plates"])) + 1
    return np.empty(0, int)


def loss_of(curve: Curve, head: str) -> np.ndarray:
    """The loss of one head, in nats: shape (minibatches,)."""
    return curve["losses"][:, list(curve["heads"]).index(head)]


def jump(loss: np.ndarray, plate_starts: np.ndarray) -> float:
    """Mean increase of the loss at a plate boundary (`jump_nats` of `table`), over the 10 minibatches on each side.

    nan if no boundary has 10 minibatches on both sides.
    """
    inside = [start for start in plate_starts if AROUND <= start <= len(loss) - AROUND]
    jumps = [loss[start : start + AROUND].mean() - loss[start - AROUND : start].mean() for start in inside]
    return float(np.mean(jumps)) if jumps else np.nan


def smooth(loss: np.ndarray) -> np.ndarray:
    """The running median, shape (minibatches,). Near the ends the window is shorter."""
    return pd.Series(loss).rolling(SMOOTH, center=True, min_periods=1).median().to_numpy()


def markdown(frame: pd.DataFrame) -> str:
    """Markdown tables of macro-F1 by order and head on both test sets, and of the jumps of each head's loss."""
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
    """The median of macro-F1, with its minimum and maximum if there are several seeds."""
    return f"{row.macro_f1:.3f}" + (f" ({row.least:.3f} to {row.most:.3f})" if row.seeds > 1 else "")
