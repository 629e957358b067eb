"""Table: after how many epochs it pays to download all files of a bucket first, instead of reading them from there.

    python -m analysis.tables.downloading results/MACHINE [DATASET]

By the grid `bucket`: ours over the bucket against ours over the files that its opening downloads, at the same settings.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from analysis.tables import command, compare
from analysis.tables.summary import measured_on
from harness.condition import Condition
from harness.data import catalogue
from harness.errors import UserError
from harness.records import jsonl
from harness.records.measurement import Measurement

GRID = "bucket"
STREAMED, DOWNLOADED = "native", "native_downloaded"


class Row(NamedTuple):
    """One setting in both ways; medians over the repeats that have both.

    open_s: seconds of opening. start_s: seconds from opening to the first minibatch. Both, and cells_per_s, are pairs:
    from the bucket, downloaded. ahead_after: the number of epochs, from the start, after which the download is ahead;
    0 if it is ahead from the first minibatch, inf for never.
    """

    condition: Condition
    open_s: tuple[float, float]
    start_s: tuple[float, float]
    cells_per_s: tuple[float, float]
    ahead_after: float
    repeats: int


def rows(measurements: Sequence[Measurement], n_cells: int) -> Iterator[Row]:
    """The settings of which both ways were measured, in windows of enough fetches, on a set of `n_cells` cells."""
    measured = compare.without_few(compare.by_condition(compare.of_one_table(measurements)))
    for condition, downloaded in measured.items():
        streamed = measured.get(replace(condition, loader=STREAMED), {})
        both = sorted(streamed.keys() & downloaded.keys())
        if condition.loader != DOWNLOADED or not both:
            continue
        pairs = [(streamed[repeat], downloaded[repeat]) for repeat in both]
        yield Row(
            condition,
            _medians([[m.open_s for m in pair] for pair in pairs]),
            _medians([[_start_s(m) for m in pair] for pair in pairs]),
            _medians([[m.cells_per_s for m in pair] for pair in pairs]),
            float(np.median([_ahead_after(*pair, n_cells) for pair in pairs])),
            len(pairs),
        )


def _medians(pairs: list[list[float]]) -> tuple[float, float]:
    first, second = np.median(pairs, axis=0)
    return float(first), float(second)


def _start_s(m: Measurement) -> float:
    return m.open_s + m.first_batch_s


def _ahead_after(streamed: Measurement, downloaded: Measurement, n_cells: int) -> float:
    """See `Row`. An epoch takes n_cells / cells_per_s, the first one too."""
    later_s = _start_s(downloaded) - _start_s(streamed)
    if later_s <= 0:
        return 0.0
    saved_s = n_cells / streamed.cells_per_s - n_cells / downloaded.cells_per_s
    return later_s / saved_s if saved_s > 0 else np.inf


def markdown(table: Sequence[Row]) -> str:
    """The table; "" without rows."""
    if not table:
        return ""
    head = ["setting (block, fetch)", "under", "opens in, s", "first minibatch after, s", "cells/s"]
    head += ["download ahead after, epochs", "repeats"]
    lines = [head, ["---", "---", *["---:"] * 5]]
    for row in table:
        numbers = (
            _arrow(row.open_s, "{:.1f}"),
            _arrow(row.start_s, "{:.1f}"),
            _arrow(row.cells_per_s, "{:,.0f}"),
            "never" if np.isinf(row.ahead_after) else f"{row.ahead_after:,.1f}",
            str(row.repeats),
        )
        lines.append([compare.setting(row.condition), row.condition.where, *numbers])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def _arrow(pair: tuple[float, float], form: str) -> str:
    """From the bucket, then downloaded."""
    return " / ".join(form.format(value) for value in pair)


def of_folder(folder: Path, dataset: str) -> str:
    """The table of a machine's folder, with what its columns hold; "" if it has no such measurements."""
    measurements = measured_on(dataset, jsonl.read(folder / f"{GRID}.jsonl"))
    if not any(m.condition.loader == DOWNLOADED and m.status == "ok" for m in measurements):
        return ""
    return markdown(list(rows(measurements, _cells(folder, dataset))))


def _cells(folder: Path, dataset: str) -> int:
    """The number of cells, by the grid's table, or by the recipe of a generated set. UserError if neither is there."""
    table = folder / "figures" / f"{dataset}-{GRID}-table.csv"
    if table.exists():
        return int(pd.read_csv(table)["n_cells"].iloc[0])
    if cells := catalogue.entries().get(dataset, {}).get("synthetic", {}).get("n_cells"):
        return cells
    raise UserError(f"How many cells {dataset} has is not known here: write the tables first, by make figures.")


def _printed(folder: Path, dataset: str) -> str:
    if table := of_folder(folder, dataset):
        return "Pairs are from the bucket / downloaded.\n\n" + table
    raise UserError(f"{folder} has no measurement of {DOWNLOADED} on {dataset} beside one of {STREAMED}.")


if __name__ == "__main__":
    command.run(__doc__, _printed)
