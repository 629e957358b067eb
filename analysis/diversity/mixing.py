"""How mixed minibatches are, label by label: entropy, distinct labels and total variation, beside what cells drawn at
random have."""

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
    """A row a label of each row of the table that has a recorded order, with its throughput.

    entropy_bits: mean over full minibatches, with spread_bits, their standard deviation, and error_bits, the standard
    error of the mean by whole fetches; distinct: labels in a minibatch; total_variation: half the sum of |share in the
    minibatch - share in the set|; random_*: the expectations of cells drawn at random, exact.

    frame: a table as `summary.table` makes it.
    """
    codes = {label: dataset.labels(label) for label in dataset.label_names}
    shares = {label: entropy.shares(of_cell) for label, of_cell in codes.items()}

    @cache
    def expectation(label: str, m: int) -> dict[str, float]:  # of all cells, and so not to be counted for every row
        return at_random(codes[label], m)

    found = []
    for row in frame[[*KEPT, "dirty"]].to_dict("records"):
        path = orders.path(folder, row["condition"], dataset.fingerprint)
        if not path.exists():
            continue
        m = row["batch_size"]
        batches, fetch_rows = orders.read(path)
        for label, of_cell in codes.items():
            bits = entropy.of_batches(batches, of_cell, m)
            mean, error = entropy.mean_and_error(bits, max(1, fetch_rows // m))
            counts = [np.bincount(of_cell[rows][of_cell[rows] >= 0]) for rows in batches if len(rows) == m]
            found.append(
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
    return pd.DataFrame(found)


def variation(counts: np.ndarray, shares: np.ndarray) -> float:
    """Total variation between a minibatch's labels and the set's; nan where none is known."""
    if not counts.sum():
        return np.nan
    mine = np.zeros(len(shares))
    mine[: len(counts)] = counts / counts.sum()
    return float(np.abs(mine - shares).sum() / 2)


def at_random(labels: np.ndarray, m: int) -> dict[str, float]:
    """What m cells drawn without replacement have on average, exact: each label's count is hypergeometric."""
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
    """The table's numbers."""
    flat = mixed.assign(key=[c.key for c in mixed["condition"]]).drop(columns=["condition", "dirty"])
    return flat.sort_values(["label", "loader", "key"]).to_csv(index=False, float_format="%.6g")
