"""Diversity of minibatches for each label: entropy, distinct labels and total variation, with the expectations for
random sampling."""

from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import hypergeom

from analysis.diversity import entropy
from harness.data.dataset import Dataset
from harness.records import orders

KEPT = ["condition", "loader", "order", "output", "block_size", "fetch_factor", "other", "batch_size", "cells_per_s"]


def table(frame: pd.DataFrame, dataset: Dataset, folder: Path) -> pd.DataFrame:
    """One row for each label and each row of `frame` that has a recorded order.

    The result has the columns KEPT and "dirty" of `frame`, and these:

    entropy_bits: mean over full minibatches; spread_bits: their standard deviation; error_bits: standard error of the
    mean, from the means of whole fetches; distinct: number of labels in a minibatch; total_variation: half the sum of
    |share in the minibatch - share in the data set|; random_*: the exact expectations for random sampling.

    frame: a table returned by `summary.table`. folder: the machine's folder, with the recorded orders.
    """
    codes = {label: dataset.labels(label) for label in dataset.label_names}
    shares = {label: entropy.shares(of_cell) for label, of_cell in codes.items()}

    @cache
    def expectation(label: str, m: int) -> dict[str, float]:  # slow: it counts all cells
        return at_random(codes[label], m)

    rows = []
    for row in frame[[*KEPT, "dirty"]].to_dict("records"):
        path = orders.path(folder, row["condition"], dataset.fingerprint)
        if not path.exists():
            continue
        m = row["batch_size"]
        batches, fetch_rows = orders.read(path)
        for label, of_cell in codes.items():
            bits = entropy.of_batches(batches, of_cell, m)
            mean, error = entropy.mean_and_error(bits, max(1, fetch_rows // m))
            counts = [np.bincount(of_cell[ids][of_cell[ids] >= 0]) for ids in batches if len(ids) == m]
            rows.append(
                row
                | {
                    "label": label,
                    "entropy_bits": mean,
                    "spread_bits": bits.std() if len(bits) else np.nan,
                    "error_bits": error,
                    "distinct": np.mean([(n > 0).sum() for n in counts]) if counts else np.nan,
                    "total_variation": np.mean([variation(n, shares[label]) for n in counts]) if counts else np.nan,
                }
                | expectation(label, m)
            )
    return pd.DataFrame(rows)


def worst(mixed: pd.DataFrame) -> pd.DataFrame:
    """The row of each condition whose label is furthest below random, with the column `short_bits`: by how many bits.

    mixed: a table returned by `table`. Conditions without a full minibatch are left out.
    """
    short = mixed.assign(short_bits=mixed["random_bits"] - mixed["entropy_bits"])
    ranked = short.dropna(subset="short_bits").sort_values("short_bits")
    return ranked.drop_duplicates("condition", keep="last")


def variation(counts: np.ndarray, shares: np.ndarray) -> float:
    """Total variation distance between the label shares of a minibatch and of the data set (`shares`).

    counts: the number of cells of each label in the minibatch. nan if all are 0.
    """
    if not counts.sum():
        return np.nan
    of_batch = np.zeros(len(shares))
    of_batch[: len(counts)] = counts / counts.sum()
    return float(np.abs(of_batch - shares).sum() / 2)


def at_random(labels: np.ndarray, m: int) -> dict[str, float]:
    """Exact expectations of entropy, number of labels and total variation, for m cells drawn without replacement.

    The number of cells of each label is hypergeometric. Cells without a label (negative codes) are never drawn.
    """
    sizes = np.bincount(labels[labels >= 0])
    total = sizes.sum()
    m = min(m, int(total))
    n = np.arange(m + 1)
    distinct = total_variation = 0.0
    for size in sizes[sizes > 0]:
        chance = hypergeom.pmf(n, total, size, m)
        distinct += 1 - chance[0]
        total_variation += chance @ np.abs(n / m - size / total) / 2
    return {
        "random_bits": entropy.random_ideal(labels, m),
        "random_distinct": float(distinct),
        "random_total_variation": float(total_variation),
    }


def csv(mixed: pd.DataFrame) -> str:
    """The table as CSV, with the key of the condition instead of the condition, and without the column `dirty`."""
    flat = mixed.assign(key=[c.key for c in mixed["condition"]]).drop(columns=["condition", "dirty"])
    return flat.sort_values(["label", "loader", "key"]).to_csv(index=False, float_format="%.6g")
