"""The table of a grid: one row a condition, from the results file and the recorded orders."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import bootstrap

import loaders
from analysis.diversity import entropy
from analysis.tables import doubts
from harness.condition import Condition
from harness.data.dataset import Dataset
from harness.grids import Grid
from harness.records import orders
from harness.records.ceiling import Ceiling, ceiling_of, roof
from harness.records.conversion import Conversion
from harness.records.measurement import Measurement
from loaders.protocol import UNCONVERTED

CSR_BYTES = 8  # a count: float32 and int32
BASELINE = "annloader"  # its random order is what the papers compare with


def rows_of(grid: Grid, dataset: Dataset, measurements: Sequence[Measurement]) -> dict[Condition, list[Measurement]]:
    """The measurements that belong in the grid's table: of these files, with this timing, from committed code.

    Rows made with uncommitted code count only for a condition that has no others. Of several tries at one
    repeat, the last.
    """
    found: dict[Condition, list[Measurement]] = {}
    for condition in grid.conditions:
        mine = [
            m
            for m in measurements
            if m.condition == condition
            and m.timing == grid.timing
            and m.provenance.get("dataset_fingerprint") == dataset.fingerprint
        ]
        clean = [m for m in mine if not m.provenance.get("git_dirty")]
        found[condition] = list({m.repeat: m for m in clean or mine}.values())
    return found


def table(
    grid: Grid,
    dataset: Dataset,
    measurements: Sequence[Measurement],
    conversions: Sequence[Conversion],
    ceilings: Sequence[Ceiling],
    folder: Path,
) -> pd.DataFrame:
    """One row a condition: its parameters, throughput with interval, entropy beside the random ideal, doubts.

    folder: of the machine, with its recorded orders. Columns carry their units; nan is "not measured". entropy_bits
    is of the data set's first label; read_per_delivered is bytes from the disk per byte of the cells' counts as CSR,
    whatever the output; start_s: from opening to the first batch; waiting_share of the window is what the consumer
    waited for batches; ceiling_cells_per_s: the least of what the disk, decoding and copying allow, and binds: which
    that is; share_of_ceiling: the median of each repeat's own.
    """
    label = dataset.label_names[0] if dataset.label_names else None
    codes = dataset.labels(label) if label else None
    found = rows_of(grid, dataset, measurements)
    baseline = {
        c.output: np.median([m.cells_per_s for m in rows if m.cells_per_s])
        for c, rows in found.items()
        if c.loader == BASELINE and c.order == "random" and any(m.cells_per_s for m in rows)
    }
    cell_bytes = CSR_BYTES * dataset.nnz / dataset.n_cells
    table = [
        _row(c, rows, baseline.get(c.output), cell_bytes) | _under_ceiling(rows, ceilings)
        for c, rows in found.items()
        if rows
    ]
    frame = pd.DataFrame(table)
    frame["entropy_bits"] = frame["entropy_error_bits"] = frame["ideal_bits"] = np.nan
    if codes is not None:
        ideals = {m: entropy.random_ideal(codes, m) for m in frame["batch_size"].unique()}  # of all cells: once each
        for i, condition in frame["condition"].items():
            path = orders.path(folder, condition, dataset.fingerprint)
            if path.exists():
                batches, fetch_rows = orders.read(path)
                bits = entropy.of_batches(batches, codes, condition.batch_size)
                per_fetch = max(1, fetch_rows // condition.batch_size)
                frame.loc[i, ["entropy_bits", "entropy_error_bits"]] = entropy.mean_and_error(bits, per_fetch)
                frame.loc[i, "ideal_bits"] = ideals[condition.batch_size]
    frame.attrs["label"] = label
    made = stores_made(conversions, dataset)
    frame["n_cells"], frame["values_per_cell"] = dataset.n_cells, dataset.nnz / dataset.n_cells
    stores = [loaders.get(name).store for name in frame["loader"]]
    frame["convert_s"] = [made[store].seconds if store in made else np.nan for store in stores]
    frame["pays_after_epochs"] = pays_after(frame, dataset.n_cells)
    frame["times_warm"] = [against_warm(condition, found) for condition in frame["condition"]]
    return frame


def stores_made(conversions: Sequence[Conversion], dataset: Dataset) -> dict[str, Conversion]:
    """By store, the latest conversion of these files that came to an end."""
    return {
        c.store: c
        for c in conversions
        if c.status == "ok" and c.provenance.get("dataset_fingerprint") == dataset.fingerprint
    }


def against_warm(condition: Condition, found: Mapping[Condition, Sequence[Measurement]]) -> float:
    """Its cells/s as a share of what the same condition gives with a warm cache, median over the repeats that have
    both; nan where none has."""
    warm = replace(condition, cache="warm", memory_fraction=None)
    if condition == warm:
        return np.nan
    rates = {m.repeat: m.cells_per_s for m in found.get(warm, ()) if m.cells_per_s}
    shares = [m.cells_per_s / rates[m.repeat] for m in found[condition] if m.cells_per_s and m.repeat in rates]
    return float(np.median(shares)) if shares else np.nan


def measured_on(dataset: str, measurements: Sequence[Measurement]) -> list[Measurement]:
    """Those of one data set: a grid's file has a machine's measurements of all of them."""
    return [m for m in measurements if m.condition.dataset == dataset]


def pays_after(frame: pd.DataFrame, n_cells: int) -> list[float]:
    """Epochs after which a conversion has cost less than going without it; inf: never; nan: nothing converted, or
    nothing measured to go without it.

    Against the fastest loader of the same order, output and cache that reads the files as they are, whatever its
    settings; the oracle, which holds all cells in memory, is left out.
    """
    rivals = {name for name in loaders.NAMES if loaders.get(name).store == UNCONVERTED and not loaders.holds_all(name)}
    unconverted = frame[frame["loader"].isin(rivals)]
    fastest = unconverted.groupby(["output", "order", "cache"])["cells_per_s"].max()
    found = []
    for row in frame.to_dict("records"):
        rival = fastest.get((row["output"], row["order"], row["cache"]), np.nan)
        saved = n_cells / rival - n_cells / row["cells_per_s"]  # seconds an epoch
        found.append(row["convert_s"] * np.inf if saved <= 0 else row["convert_s"] / saved)
    return found


def _row(
    condition: Condition, rows: Sequence[Measurement], baseline: float | None, cell_bytes: float
) -> dict[str, object]:
    ok = [m for m in rows if m.status == "ok"]
    rates = np.array([m.cells_per_s for m in ok])
    last = rows[-1]
    low, high = interval(rates)
    knobs = dict(loaders.get(condition.loader).knobs) | dict(condition.knobs)
    random_blocks = condition.order == "random" and "block_size" in knobs
    return {
        "condition": condition,
        "loader": condition.loader,
        "order": condition.order,
        "output": condition.output,
        "block_size": knobs["block_size"] if random_blocks else np.nan,
        "fetch_factor": knobs.get("fetch_factor", np.nan),
        "other": " ".join(
            [f"{k}={v}" for k, v in condition.knobs if k not in ("block_size", "fetch_factor")]
            + ([condition.cache] if condition.cache != "cold" else [])
        ),
        "batch_size": condition.batch_size,
        "buffer_rows": condition.batch_size * knobs.get("fetch_factor", np.nan),
        "workers": condition.workers,
        "processes": condition.processes,
        "cores": condition.cores or np.nan,
        "cache": condition.cache,
        "consumer_ms": condition.consumer_ms,
        "repeats": len(ok),
        "cells_per_s": np.median(rates) if len(rates) else np.nan,
        "low_cells_per_s": low,
        "high_cells_per_s": high,
        "times_baseline": np.median(rates) / baseline if len(rates) and baseline else np.nan,
        "cpu_us_per_cell": _median(m.cpu_s / m.rows * 1e6 for m in ok if m.cpu_s),
        "read_per_delivered": _median(
            m.disk_read_bytes / (m.rows * cell_bytes) for m in ok if m.disk_read_bytes is not None
        ),
        "waiting_share": _median(m.waiting_s / m.seconds for m in ok if m.waiting_s is not None),
        "peak_rss_bytes": max((m.peak_rss_bytes for m in ok if m.peak_rss_bytes), default=np.nan),
        "start_s": _median(m.open_s + m.first_batch_s for m in ok if m.open_s is not None),
        "fetches": min((m.fetches for m in ok), default=np.nan),
        "from_memory": any(doubts.mostly_from_memory(m) for m in ok),
        "dirty": any(m.provenance.get("git_dirty") for m in rows),
        "status": "ok" if ok else last.status,
        "reason": None if ok else last.reason,
        "marks": list(ok[-1].marks.values()) if ok else [],
        "doubts": sorted({d for m in ok for d in doubts.of_row(m)}) + doubts.of_repeats(ok),
    }


def _under_ceiling(rows: Sequence[Measurement], ceilings: Sequence[Ceiling]) -> dict[str, object]:
    roofs = [(m, roof(m, c)) for m in rows if m.status == "ok" and (c := ceiling_of(m, ceilings))]
    return {
        "disk_bytes_per_cell": _median(m.disk_read_bytes / m.rows for m in rows if m.disk_read_bytes is not None),
        "ceiling_cells_per_s": _median(over.cells_per_s for _, over in roofs),
        "binds": roofs[-1][1].binds if roofs else None,
        "share_of_ceiling": _median(m.cells_per_s / over.cells_per_s for m, over in roofs),
    }


def _median(values: Iterable[float]) -> float:
    found = list(values)
    return float(np.median(found)) if found else np.nan


def interval(rates: np.ndarray) -> tuple[float, float]:
    """A 95 % bootstrap interval of the median over processes; nan for fewer than two."""
    if len(rates) < 2:
        return np.nan, np.nan
    found = bootstrap((rates,), np.median, method="percentile", rng=np.random.default_rng(0)).confidence_interval
    return float(found.low), float(found.high)
