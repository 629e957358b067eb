"""Which loader, block size and fetch factor: the fastest of those whose minibatches are as mixed as is asked for."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

import loaders
from analysis import entropy, expected, mixing
from harness.condition import Condition
from harness.dataset import Dataset


def shortfalls(frame: pd.DataFrame, dataset: Dataset, folder: Path) -> pd.DataFrame:
    """Of the rows in random order that have a recorded order: the row's table, and for each label `short_LABEL`, the
    bits by which minibatches fall short of cells drawn at random, and `error_LABEL`.

    law_bits: what is to be expected of the first label by block size and fetch factor, its blocks of one value each.
    """
    first = dataset.label_names[0]
    shares = entropy.shares(dataset.labels(first))
    rows = frame[(frame["order"] == "random") & frame["cells_per_s"].notna()]
    mixed = mixing.table(rows, dataset, folder)
    if mixed.empty:
        return mixed
    found = {row["condition"]: row for row in rows.to_dict("records")}
    for mix in mixed.to_dict("records"):
        row, label, m = found[mix["condition"]], mix["label"], mix["batch_size"]
        row[f"short_{label}"] = mix["random_bits"] - mix["entropy_bits"]
        row[f"error_{label}"] = mix["error_bits"]
        if label == first:
            row["law_bits"] = np.nan
            if not np.isnan(mix["block_size"]):
                law = expected.exact(shares, m, int(mix["block_size"]), int(mix["fetch_factor"]))
                row["law_bits"] = mix["random_bits"] - law
    return pd.DataFrame([row for row in found.values() if "law_bits" in row])


def choose(found: pd.DataFrame, labels: Sequence[str], within: float) -> pd.DataFrame:
    """Those that fall short by no more than `within` bits for every label, the fastest of each output first."""
    is_mixed = (found[[f"short_{label}" for label in labels]] <= within).all(axis=1)
    mixed = found[is_mixed & ~found["loader"].map(loaders.holds_all)]
    return mixed.sort_values(["output", "cells_per_s"], ascending=[True, False], ignore_index=True)


def lines(chosen: pd.DataFrame, labels: Sequence[str]) -> list[dict[str, str]]:
    """The table as text."""
    told = []
    for row in chosen.to_dict("records"):
        short = {
            f"short of random, {label}": f"{row[f'short_{label}']:.3f}"
            + ("" if np.isnan(row[f"error_{label}"]) else f" ± {row[f'error_{label}']:.3f}")
            for label in labels
        }
        settings = " ".join(f"{name}={value}" for name, value in row["condition"].knobs) or "as its authors advise"
        told.append(
            {
                "loader": row["loader"],
                "settings": settings,
                "output": row["output"],
                "cells/s": f"{row['cells_per_s']:,.0f}",
                "memory, MB": "–" if np.isnan(row["peak_rss_bytes"]) else f"{row['peak_rss_bytes'] / 1e6:,.0f}",
                **short,
                f"{labels[0]} by the law": "–" if np.isnan(row["law_bits"]) else f"{row['law_bits']:.3f}",
            }
        )
    return told


def code(condition: Condition, dataset: Dataset, named: str, path: Path) -> str:
    """Python that reads minibatches so: by the library's own API where the adapter knows it, else through the adapter.

    named: the data set as the command names it. path: the loader's store of it.
    """
    own = getattr(loaders.get(condition.loader), "code", None)
    if own is not None:
        return own(dataset, path, condition)
    values = condition.to_dict()
    kept = ("order", "batch_size", "workers", "cores", "output")
    shown = [f"{name}={values[name]!r}" for name in kept if values[name] is not None]
    return f"""import loaders
from harness.catalogue import load
from harness.condition import Condition
from harness.prepare import store_path

name = {condition.loader!r}
dataset = load({named!r})
condition = Condition(
    dataset=dataset.name, loader=name, {", ".join(shown)},
    knobs={condition.knobs!r},
)
loader = loaders.get(name).open(dataset, store_path(dataset, name), condition, rows=True)
for epoch in range(10):
    for batch in loader.epoch(epoch):
        batch.x, batch.rows  # minibatches, and the numbers of their cells
"""
