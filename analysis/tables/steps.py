"""Table of training steps that loaders feed: their time, the wait for minibatches, and the use of the device.

python -m analysis.tables.steps results/MACHINE [DATASET]
"""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from analysis.tables.command import run
from harness.condition import FEWEST_FETCHES
from harness.records import jsonl
from harness.records.steps import FILE, Steps

DEFINITION = """\
*MFU* (model FLOPs utilisation) is the FLOPs that the model needs for its steps, forward and backward, over those that
the device could have computed in the same time, waiting included, at its measured peak: the highest rate of a large
matrix product in the steps' dtype. *Of tokens* leaves padding out. *Step* is training on a minibatch, *wait* the time
in `next()`, tokenising included: medians, with the 90th percentile in brackets. Nothing overlaps but what a loader does
by itself."""
NO_LOADER = "none: one minibatch, held"
FEW = f"\\* fewer than {FEWEST_FETCHES} fetches in the window: its wait is of few fetches, and judges nothing."


def table(runs: Sequence[Steps]) -> pd.DataFrame:
    """One row for each setting, of its latest run: its fields, and rates and shares that follow from them.

    mfu, token_mfu and wait_share are shares. Ordered by device, size and, within them, by cells/s.
    """
    latest = {run.setting: run for run in runs}.values()
    rows = [
        {
            "device": run.device,
            "size": run.size,
            "loader": run.loader or NO_LOADER,
            "workers": run.workers,
            "dtype": run.dtype,
            "parameters": run.parameters,
            "batch_size": run.batch_size,
            "length": run.length,
            "status": run.status,
            "reason": run.reason,
            "steps": run.steps,
            "fetches": run.fetches,
            "step_median_s": run.step_median_s,
            "step_p90_s": run.step_p90_s,
            "copy_median_s": run.copy_median_s,
            "wait_median_s": run.wait_median_s,
            "wait_p90_s": run.wait_p90_s,
            "wait_share": run.wait_share,
            "cells_per_s": run.cells_per_s,
            "tokens_per_s": run.tokens_per_s,
            "flops_per_step": run.flops / run.steps if run.steps else None,
            "flops_per_s": run.flops / run.seconds if run.seconds else None,
            "peak_flops_per_s": run.peak_flops_per_s,
            "mfu": run.mfu,
            "token_mfu": run.token_mfu,
            "dirty": bool(run.provenance.get("git_dirty")),
        }
        for run in latest
    ]
    return pd.DataFrame(rows).sort_values(["device", "size", "cells_per_s"], ascending=[True, True, False])


def markdown(frame: pd.DataFrame) -> str:
    """The definition of MFU, and the tables of `bodies`."""
    return f"{DEFINITION}\n\n{bodies(frame)}"


def bodies(frame: pd.DataFrame) -> str:
    """A table for each model on each device, below a line that names both."""
    parts = []
    for (device, size, batch_size, length), rows in frame.groupby(["device", "size", "batch_size", "length"]):
        first = rows.iloc[0]
        peak = _number(first["peak_flops_per_s"] / 1e12)
        parts.append(
            f"`{size}`, {first['parameters']:,} parameters, minibatches of {batch_size} cells in rows of {length:,} "
            f"tokens, on {device} in {first['dtype']} with a peak of {peak} TFLOP/s:"
        )
        head = ["loader", "steps", "step, ms", "wait, ms", "wait", "cells/s", "tokens/s", "MFU", "of tokens"]
        lines = [head, ["---", *["---:"] * (len(head) - 1)], *map(_line, rows.to_dict("records"))]
        parts.append("\n".join("| " + " | ".join(line) + " |" for line in lines))
        if (rows["fetches"] < FEWEST_FETCHES).any():
            parts.append(FEW)
    return "\n\n".join(parts) + "\n"


def _line(row: dict) -> list[str]:
    name = row["loader"] + (f", {row['workers']} workers" if row["workers"] else "")
    name += " (uncommitted code)" if row["dirty"] else ""
    if row["status"] != "ok":
        return [f"{name}: {row['status']}, {row['reason']}", *["–"] * 8]
    few = "\\*" if row["fetches"] < FEWEST_FETCHES else ""
    return [
        name,
        f"{row['steps']:,.0f}",
        _spread(row, "step"),
        _spread(row, "wait"),
        "–" if pd.isna(row["wait_share"]) else f"{row['wait_share']:.1%}{few}",
        f"{row['cells_per_s']:,.0f}",
        f"{row['tokens_per_s']:,.0f}",
        f"{row['mfu']:.1%}",
        f"{row['token_mfu']:.1%}",
    ]


def _spread(row: dict, part: str) -> str:
    median, p90 = row[f"{part}_median_s"], row[f"{part}_p90_s"]
    return "–" if pd.isna(median) else f"{_number(1e3 * median)} ({_number(1e3 * p90)})"


def _number(value: float) -> str:
    """Whole numbers from 100 on, else three significant digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def of_folder(records: Path, dataset: str | None = None) -> str:
    """The tables of all runs in a machine's folder on a data set, by its name; "" if there are none."""
    folder = records if records.is_dir() else records.parent
    runs = [run for run in jsonl.read(folder / FILE, Steps) if dataset in (None, run.dataset)]
    return markdown(table(runs)) if runs else ""


if __name__ == "__main__":
    run(__doc__, of_folder)
