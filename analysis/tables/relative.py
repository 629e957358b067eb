"""Columns of a grid's table that compare its rows: with those in memory, and with those that need no conversion."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

import loaders
from harness.condition import Condition
from harness.data.dataset import Dataset
from harness.records.conversion import Conversion
from harness.records.measurement import Measurement
from loaders.protocol import UNCONVERTED


def stores_made(conversions: Sequence[Conversion], dataset: Dataset) -> dict[str, Conversion]:
    """By store, the latest successful conversion of this data set."""
    return {
        c.store: c
        for c in conversions
        if c.status == "ok" and c.provenance.get("dataset_fingerprint") == dataset.fingerprint
    }


def against_warm(condition: Condition, measured: Mapping[Condition, Sequence[Measurement]]) -> float:
    """Throughput relative to the same condition with a warm cache: the median over the repeats that have both.

    nan if no repeat has both, or if the condition itself is warm.
    """
    warm = replace(condition, cache="warm", memory_fraction=None, memory_limit_bytes=None, disk=None,
                   ttfb_ms=None, link_mbps=None, connection_mbps=None)  # fmt: skip
    if condition == warm:
        return np.nan
    rates = {m.repeat: m.cells_per_s for m in measured.get(warm, ()) if m.cells_per_s}
    shares = [m.cells_per_s / rates[m.repeat] for m in measured[condition] if m.cells_per_s and m.repeat in rates]
    return float(np.median(shares)) if shares else np.nan


def pays_after(frame: pd.DataFrame, n_cells: int) -> list[float]:
    """For each row, the number of epochs after which the time saved exceeds the time of the conversion.

    inf: the row is not faster. nan: nothing was converted, or there is no loader to compare with.

    A row is compared with the fastest row of the same order, output, regime and disk whose loader reads the original
    files where they are, and does not hold all cells in memory.
    """
    unconverted = {name for name in loaders.NAMES if loaders.get(name).store == UNCONVERTED}
    rivals = {name for name in unconverted if not loaders.holds_all(name) and not loaders.keeps_copies(name)}
    fastest = frame[frame["loader"].isin(rivals)].groupby(["output", "order", "cache", "disk"])["cells_per_s"].max()
    epochs = []
    for row in frame.to_dict("records"):
        rival = fastest.get((row["output"], row["order"], row["cache"], row["disk"]), np.nan)
        saved = n_cells / rival - n_cells / row["cells_per_s"]  # seconds per epoch
        epochs.append(row["convert_s"] * np.inf if saved <= 0 else row["convert_s"] / saved)
    return epochs
