"""How mixed minibatches are, label by label: entropy, distinct labels and total variation, beside what cells drawn at
random have."""

from functools import cache
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy.stats import hypergeom

from analysis import entropy
from analysis.figures import COLOURS, STYLE, Drawn, uncommitted
from harness import results
from harness.dataset import Dataset

KEPT = ["condition", "loader", "order", "output", "block_size", "fetch_factor", "other", "batch_size", "cells_per_s"]
MARKERS = {"random": "o", "stream": "s"}


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
        path = results.order_path(folder, row["condition"], dataset.fingerprint)
        if not path.exists():
            continue
        m = row["batch_size"]
        batches, fetch_rows = entropy.read_order(path)
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


@matplotlib.rc_context(STYLE)
def draw(mixed: pd.DataFrame, dataset: str) -> Drawn | None:
    """Entropy against throughput, a panel a label: each loader's settings in random order joined by a line, csr
    alone, with the level of cells drawn at random. None for fewer than three loaders."""
    rows = mixed[(mixed["output"] == "csr") & mixed["cells_per_s"].notna()] if len(mixed) else mixed
    if not len(rows) or rows["loader"].nunique() < 3 or rows["batch_size"].nunique() > 1:
        return None
    labels = list(dict.fromkeys(rows["label"]))
    figure = Figure(figsize=(3.6 * len(labels) + 1, 3.9), layout="constrained")
    names = list(rows.groupby("loader")["cells_per_s"].max().sort_values(ascending=False).index)
    for ax, label in zip(figure.subplots(1, len(labels), squeeze=False)[0], labels, strict=True):
        panel = rows[rows["label"] == label]
        ax.axhline(panel["random_bits"].iloc[0], color="0.5", lw=0.8, ls="--")
        for i, name in enumerate(names):
            mine = panel[panel["loader"] == name].sort_values("cells_per_s")
            colour, filled = COLOURS[i % len(COLOURS)], i < len(COLOURS)
            swept = mine[mine["order"] == "random"]
            ax.plot(swept["cells_per_s"], swept["entropy_bits"], lw=0.4, color=colour)
            for order, marker in MARKERS.items():
                points = mine[mine["order"] == order]
                ax.plot(
                    points["cells_per_s"], points["entropy_bits"], marker, ls="", color=colour, ms=4.5, mew=0.9,
                    mfc=colour if filled else "none",
                )  # fmt: skip
            ax.plot([], [], "o", color=colour, mfc=colour if filled else "none", ms=4.5, label=name)
        ax.set(xscale="log", title=label, xlabel="cells/s")
    figure.axes[0].set_ylabel("entropy in a minibatch, bits")
    handles, texts = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, texts, loc="outside lower center", ncols=5, frameon=False, fontsize=7)
    title = f"Speed and mixing on {dataset}: circles random, squares stream, dashed cells drawn at random"
    figure.suptitle(title + uncommitted(rows["dirty"].any()), fontsize=9)
    columns = ["label", "loader", "order", "block_size", "fetch_factor", "other", "cells_per_s", "entropy_bits"]
    return Drawn(figure, rows[[*columns, "random_bits"]].sort_values(columns[:-1]))


def csv(mixed: pd.DataFrame) -> str:
    """The table's numbers."""
    flat = mixed.assign(key=[c.key for c in mixed["condition"]]).drop(columns=["condition", "dirty"])
    return flat.sort_values(["label", "loader", "key"]).to_csv(index=False, float_format="%.6g")
