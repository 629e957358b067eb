"""The table of a grid: one row for each condition, from the results file and the recorded orders."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import bootstrap

import loaders
from analysis.diversity import entropy
from analysis.tables import doubts
from analysis.tables.relative import against_warm, pays_after, stores_made
from harness.condition import Condition
from harness.data.dataset import Dataset
from harness.grids import CSR_BYTES, Grid
from harness.records import orders
from harness.records.base import Record
from harness.records.ceiling import Ceiling, ceiling_of, roof
from harness.records.conversion import Conversion
from harness.records.measurement import Measurement

LEAST_FOR_BOOTSTRAP = 6  # repeats
BASELINE = "annloader"  # the papers compare with its random order


def rows_of(grid: Grid, dataset: Dataset, measurements: Sequence[Measurement]) -> dict[Condition, list[Measurement]]:
    """The measurements in the grid's table, by condition: those with the grid's timing and the data set's fingerprint.

    All are of one state of the code, the newest that was measured. Measurements of uncommitted code are used only if
    there are no others. If a repeat was measured several times, the last measurement is used. The second measurements
    of A/A pairs are left out.
    """
    by_repeat: dict[Condition, dict[int, Measurement]] = {condition: {} for condition in grid.conditions}
    for m in of_one_code(_matching(grid, dataset, measurements)):
        if not m.again:
            by_repeat[m.condition][m.repeat] = m
    return {condition: list(rows.values()) for condition, rows in by_repeat.items()}


def chance(grid: Grid, dataset: Dataset, measurements: Sequence[Measurement]) -> list[float]:
    """The ratio of the second to the first throughput of the A/A pair, for each repeat that has both."""
    return chance_of(of_one_code(_matching(grid, dataset, measurements)))


def chance_of(measurements: Iterable[Measurement]) -> list[float]:
    """The same for all conditions that were measured twice in a repeat."""
    pairs: dict[tuple[Condition, int], dict[bool, float]] = {}
    for m in measurements:
        if m.cells_per_s:
            pairs.setdefault((m.condition, m.repeat), {})[bool(m.again)] = m.cells_per_s
    return [pair[True] / pair[False] for pair in pairs.values() if len(pair) == 2]


def _matching(grid: Grid, dataset: Dataset, measurements: Sequence[Measurement]) -> list[Measurement]:
    conditions = set(grid.conditions)
    return [
        m
        for m in measurements
        if m.condition in conditions
        and m.timing == grid.timing
        and m.provenance.get("dataset_fingerprint") == dataset.fingerprint
    ]


def of_one_code[T: Record](measurements: Iterable[T]) -> list[T]:
    """The records of the code that was measured last: committed code, if there is any.

    Records of the first edition of the rules do not name the code that they measured; for them it is the commit.
    """
    measurements = list(measurements)
    clean = [m for m in measurements if not m.provenance.get("git_dirty")] or measurements
    if not clean:
        return []
    newest = code_of(max(clean, key=lambda m: m.provenance.get("utc", "")))
    return [m for m in clean if code_of(m) == newest]


def code_of(m: Record) -> str | None:
    """What identifies the code that a record is of."""
    return m.provenance.get("code") or m.provenance.get("git_commit")


def table(
    grid: Grid,
    dataset: Dataset,
    measurements: Sequence[Measurement],
    conversions: Sequence[Conversion],
    ceilings: Sequence[Ceiling],
    folder: Path,
) -> pd.DataFrame:
    """One row for each condition: parameters, throughput with its range or interval, entropy, ceiling and doubts.

    folder: the machine's folder, with the recorded orders. Column names carry the units; nan means "not measured".

    output: as `Condition.form`. tokens_per_s: without padding.
    entropy_bits: entropy of the data set's first label in a minibatch; ideal_bits: its expectation for random sampling.
    disk: the limited disk, or the link to a bucket. read_per_delivered: bytes read from it for each byte of the cells'
    counts as CSR, for either output. reads_per_1000: reads from a limited disk, or requests to a bucket, for a thousand
    cells.
    start_s: seconds from opening to the first minibatch, without imports. counts_per_s: stored values per second.
    buffer_rows: the cells of a fetch, of all workers and processes. net_bytes: see `net_bytes`.
    waiting_share: share of the window in which the consumer waited for minibatches. ceiling_cells_per_s: the lowest of
    the ceilings of disk, decoding and copying; binds: its name; share_of_ceiling: throughput over ceiling, median over
    repeats. convert_s: seconds of the store's conversion. pays_after_epochs: see `pays_after`. times_warm: see
    `against_warm`.
    """
    label = dataset.label_names[0] if dataset.label_names else None
    codes = dataset.labels(label) if label else None
    measured = rows_of(grid, dataset, measurements)
    baseline = {
        (c.form, c.cache, c.where): np.median([m.cells_per_s for m in rows if m.cells_per_s])
        for c, rows in measured.items()
        if c.loader == BASELINE and c.order == "random" and any(m.cells_per_s for m in rows)
    }
    cell_bytes = CSR_BYTES * dataset.nnz / dataset.n_cells
    rows = [
        _row(c, rows, baseline.get((c.form, c.cache, c.where)), cell_bytes) | _under_ceiling(rows, ceilings)
        for c, rows in measured.items()
        if rows
    ]
    frame = pd.DataFrame(rows)
    if frame["cores"].nunique(dropna=False) > 1:  # otherwise they distinguish no rows
        limits = ["" if np.isnan(cores) else f" cores={cores:.0f}" for cores in frame["cores"].astype(float)]
        frame["other"] = (frame["other"] + limits).str.strip()
    frame["entropy_bits"] = frame["entropy_error_bits"] = frame["ideal_bits"] = np.nan
    if codes is not None:
        ideals = {m: entropy.random_ideal(codes, m) for m in frame["batch_size"].unique()}  # slow
        for i, condition in frame["condition"].items():
            path = orders.path(folder, condition, dataset.fingerprint)
            if path.exists():
                batches, fetch_rows = orders.read(path)
                bits = entropy.of_batches(batches, codes, condition.batch_size)
                per_fetch = max(1, fetch_rows // condition.batch_size)
                frame.loc[i, ["entropy_bits", "entropy_error_bits"]] = entropy.mean_and_error(bits, per_fetch)
                frame.loc[i, "ideal_bits"] = ideals[condition.batch_size]
    frame.attrs["label"] = label
    frame.attrs["chance"] = chance(grid, dataset, measurements)
    converted = stores_made(conversions, dataset)
    frame["n_cells"], frame["values_per_cell"] = dataset.n_cells, dataset.nnz / dataset.n_cells
    frame["counts_per_s"] = frame["cells_per_s"] * frame["values_per_cell"]
    stores = [loaders.get(name).store for name in frame["loader"]]
    frame["convert_s"] = [converted[store].seconds if store in converted else np.nan for store in stores]
    frame["pays_after_epochs"] = pays_after(frame, dataset.n_cells)
    frame["times_warm"] = [against_warm(condition, measured) for condition in frame["condition"]]
    return frame


def measured_on(dataset: str, measurements: Sequence[Measurement], *, pairs: bool = False) -> list[Measurement]:
    """The measurements of one data set. A grid's file holds all data sets.

    pairs: with the second measurements of A/A pairs, for `chance_of`.
    """
    return [m for m in measurements if m.condition.dataset == dataset and (pairs or not m.again)]


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
        "output": condition.form,
        "block_size": knobs["block_size"] if random_blocks else np.nan,
        "fetch_factor": knobs.get("fetch_factor", np.nan),
        "other": " ".join(
            [f"{k}={v}" for k, v in condition.knobs if k not in ("block_size", "fetch_factor")]
            + ([f"workers={condition.workers}"] if condition.workers else [])
            + ([f"processes={condition.processes}"] if condition.processes > 1 else [])
        ),
        "batch_size": condition.batch_size,
        "buffer_rows": _median(m.rows / m.fetches for m in ok) * max(1, condition.workers) * condition.processes,
        "workers": condition.workers,
        "processes": condition.processes,
        "cores": condition.cores or np.nan,
        "cache": condition.cache,
        "disk": condition.where,
        "consumer_ms": condition.consumer_ms,
        "repeats": len(ok),
        "cells_per_s": np.median(rates) if len(rates) else np.nan,
        "low_cells_per_s": low,
        "high_cells_per_s": high,
        "tokens_per_s": _median(m.tokens_per_s for m in ok if m.tokens_per_s is not None),
        "times_baseline": np.median(rates) / baseline if len(rates) and baseline else np.nan,
        "cpu_us_per_cell": _median(m.cpu_s / m.rows * 1e6 for m in ok if m.cpu_s),
        "read_per_delivered": _median(
            n_bytes / (m.rows * cell_bytes) for m in ok if (n_bytes := _read_bytes(m)) is not None
        ),
        "reads_per_1000": _median(
            reads / m.rows * 1000
            for m in ok
            if (reads := m.requests if condition.ttfb_ms is not None else m.disk_reads) is not None
        ),
        "waiting_share": _median(m.waiting_s / m.seconds for m in ok if m.waiting_s is not None),
        "net_bytes": max((net for m in ok if (net := net_bytes(m)) is not None), default=np.nan),
        "peak_rss_bytes": max((m.peak_rss_bytes for m in ok if m.peak_rss_bytes), default=np.nan),
        "start_s": _median(m.open_s + m.first_batch_s for m in ok if m.open_s is not None),
        "fetches": min((m.fetches for m in ok), default=np.nan),
        "cool": any(doubts.cool(m) for m in ok),
        "dirty": any(m.provenance.get("git_dirty") for m in rows),
        "status": "ok" if ok else last.status,
        "reason": _reason(rows),
        "marks": list(ok[-1].marks.values()) if ok else [],
        "doubts": sorted({d for m in ok for d in doubts.of_row(m)}) + doubts.of_repeats(ok),
    }


def read_bytes_per_cell(rows: Any) -> Any:
    """The bytes that were read or received for a cell, of rows of `table`, or of one row."""
    return rows["read_per_delivered"] * CSR_BYTES * rows["values_per_cell"]


def _read_bytes(m: Measurement) -> int | None:
    """The bytes that were read from the disk, or received from a bucket; None if that was not measured."""
    return m.received_bytes if m.condition.ttfb_ms is not None else m.disk_read_bytes


def _reason(rows: Sequence[Measurement]) -> str | None:
    """Why a condition, or some of its repeats, has no throughput; None if all repeats have one."""
    without = [m for m in rows if m.status != "ok"]
    if not without:
        return None
    if len(without) == len(rows):
        return rows[-1].reason
    reasons = dict.fromkeys(f"{m.status}, {m.reason}" for m in without)
    return f"without {len(without)} of {len(rows)} repeats: {'; '.join(reasons)}"


def _under_ceiling(rows: Sequence[Measurement], ceilings: Sequence[Ceiling]) -> dict[str, object]:
    roofs = [(m, roof(m, c)) for m in rows if m.status == "ok" and (c := ceiling_of(m, ceilings))]
    return {
        "disk_bytes_per_cell": _median(m.disk_read_bytes / m.rows for m in rows if m.disk_read_bytes is not None),
        "ceiling_cells_per_s": _median(limit.cells_per_s for _, limit in roofs),
        "binds": roofs[-1][1].binds if roofs else None,
        "share_of_ceiling": _median(m.cells_per_s / limit.cells_per_s for m, limit in roofs),
    }


def net_bytes(m: Measurement) -> int | None:
    """The most memory that the loader held, without imported modules and pages of files; None if not measured."""
    return m.held_bytes - m.imported_bytes if m.held_bytes is not None and m.imported_bytes is not None else None


def _median(values: Iterable[float]) -> float:
    values = list(values)
    return float(np.median(values)) if values else np.nan


def interval(rates: np.ndarray) -> tuple[float, float]:
    """(low, high) of the median of `rates`, one value for each repeat; nan for fewer than two.

    For fewer than LEAST_FOR_BOOTSTRAP repeats their range, else the 95 % bootstrap interval (percentile method, with a
    fixed seed). Repeats are independent, because each ran in its own process.
    """
    if len(rates) < 2:
        return np.nan, np.nan
    if len(rates) < LEAST_FOR_BOOTSTRAP:
        return float(min(rates)), float(max(rates))
    bounds = bootstrap((rates,), np.median, method="percentile", rng=np.random.default_rng(0)).confidence_interval
    return float(bounds.low), float(bounds.high)
