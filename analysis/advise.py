"""Recommends a loader, block size and fetch factor: the fastest whose minibatches are diverse enough."""

from pathlib import Path

import numpy as np
import pandas as pd

import loaders
from analysis.diversity import entropy, expected, mixing
from harness.condition import Condition
from harness.data.dataset import Dataset

EXPLAINED = {
    "settings": "the loader's own parameters; those not named are its authors' defaults",
    "cells/s": "median throughput, in minibatches that are complete in memory",
    "memory, MB": "peak memory of the loader's process and its workers",
    "short of random, bits": "how much less entropy a minibatch has than cells drawn at random, for the label for "
    "which that is most; ± is the standard error",
    "worst label": "the obs column for which that is so",
    "expected, bits": "the same in theory, if every block holds one value of that label (docs/glossary.md)",
}
"""Explanations of columns of the table that `lines` returns, printed below it."""


def candidates(frame: pd.DataFrame, dataset: Dataset, folder: Path) -> pd.DataFrame:
    """The rows of a table that may be recommended: random order, and a loader that does not hold all
    cells in memory.

    If the data set has labels, rows without a recorded order are dropped, and four columns are added. `worst` is the
    label whose entropy in a minibatch is furthest below that of random sampling. `short_bits` is this difference for
    that label, `error_bits` its standard error, and `expected_bits` its value in theory if every block holds a single
    label (nan for rows without a block size).

    frame: a table returned by `summary.table`. folder: the machine's folder, with the recorded orders.
    """
    rows = frame[(frame["order"] == "random") & frame["cells_per_s"].notna()]
    rows = rows[~rows["loader"].map(loaders.holds_all).astype(bool)]
    if not dataset.label_names or rows.empty:
        return rows
    mixed = mixing.table(rows, dataset, folder)
    if mixed.empty:
        return rows.iloc[:0]
    worst = mixing.worst(mixed)
    shares = {label: entropy.shares(dataset.labels(label)) for label in dataset.label_names}
    worst["expected_bits"] = [
        np.nan
        if np.isnan(row.block_size)
        else row.random_bits
        - expected.exact(shares[row.label], row.batch_size, int(row.block_size), int(row.fetch_factor))
        for row in worst.itertuples()
    ]
    judged = worst.rename(columns={"label": "worst"})[
        ["condition", "short_bits", "error_bits", "worst", "expected_bits"]
    ]
    return rows.merge(judged, on="condition")


def choose(rows: pd.DataFrame, within: float) -> pd.DataFrame:
    """The candidates whose `short_bits` is at most `within`, sorted by output and then by throughput, fastest first.

    rows: a table returned by `candidates`. If it has no column `short_bits`, because the data set has no labels, all of
    its rows are returned.
    """
    if "short_bits" in rows:
        rows = rows[rows["short_bits"] <= within]
    return rows.sort_values(["output", "cells_per_s"], ascending=[True, False], ignore_index=True)


def lines(chosen: pd.DataFrame) -> list[dict[str, str]]:
    """The rows as text by column name. The last three columns of EXPLAINED are absent if the data set has no labels."""
    return [_line(row) for row in chosen.to_dict("records")]


def _line(row: dict[str, object]) -> dict[str, str]:
    settings = " ".join(f"{name}={value}" for name, value in row["condition"].knobs) or "defaults"
    line = {
        "loader": row["loader"],
        "settings": settings,
        "output": row["output"],
        "cells/s": f"{row['cells_per_s']:,.0f}",
        "memory, MB": "–" if np.isnan(row["peak_rss_bytes"]) else f"{row['peak_rss_bytes'] / 1e6:,.0f}",
    }
    if "short_bits" not in row:
        return line
    error = "" if np.isnan(row["error_bits"]) else f" ± {row['error_bits']:.3f}"
    return line | {
        "short of random, bits": f"{row['short_bits']:.3f}{error}",
        "worst label": row["worst"],
        "expected, bits": "–" if np.isnan(row["expected_bits"]) else f"{row['expected_bits']:.3f}",
    }


def code(condition: Condition, dataset: Dataset, spec: str, path: Path) -> str:
    """A Python program that reads minibatches under this condition.

    If the loader's adapter has a function `code`, the program calls the library directly; otherwise it calls the
    adapter. spec: the data set as given on the command line. path: the loader's store of the data set.
    """
    of_library = getattr(loaders.get(condition.loader), "code", None)
    if of_library is not None:
        return of_library(dataset, path, condition)
    values = condition.to_dict()
    kept = ("order", "batch_size", "workers", "cores", "output")
    shown = [f"{name}={values[name]!r}" for name in kept if values[name] is not None]
    return f"""import loaders
from harness.condition import Condition
from harness.data.catalogue import load
from harness.run.stores import store_path

name = {condition.loader!r}
dataset = load({spec!r})
condition = Condition(
    dataset=dataset.name, loader=name, {", ".join(shown)},
    knobs={condition.knobs!r},
)
loader = loaders.get(name).open(dataset, store_path(dataset, name), condition, rows=True)
for epoch in range(10):
    for batch in loader.epoch(epoch):
        batch.x, batch.rows  # minibatches, and the numbers of their cells
"""
