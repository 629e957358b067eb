"""The rate of every loader in a results folder, at its best setting.

The rates are those of the newest records of a grid. How diverse the minibatches of a setting are stands in the tables
that `bench` and `figures` write beside them, so that no data set is needed here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

import loaders
from analysis.tables import compare, frontier, summary
from harness.condition import Condition
from harness.data import catalogue
from harness.data.dataset import Dataset
from harness.errors import UserError
from harness.grids import Grid
from harness.records import conversion, jsonl
from harness.records.conversion import Conversion
from harness.records.measurement import Measurement
from loaders.protocol import UNCONVERTED

Link = tuple[float | None, float | None]
"""(Mbit/s, ms to the first byte) of the bucket that was read; (None, None): local files."""


@dataclass(frozen=True, kw_only=True)
class Rate:
    """The throughput of a loader at one setting; None: not measured.

    low_, high_cells_per_s: range or interval of the median over `repeats`. cores: of the machine, in use. short_bits:
    by how much the minibatches fall short of random. admitted: whether they may be compared, by `frontier.settings`.
    store_bytes, n_cells: of the set that was read. convert_s: the seconds that making the store took; 0 for files as
    they are. marks: the contract's claims that the loader does not keep. bytes_per_cell, cells_per_request: of what a
    bucket served within the window; None for local files.
    """

    loader: str
    setting: str
    cache: str
    disk: str
    link_mbps: float | None
    ttfb_ms: float | None
    cells_per_s: float
    low_cells_per_s: float
    high_cells_per_s: float
    repeats: int
    cores: int
    short_bits: float | None
    admitted: bool
    n_cells: int
    store_bytes: int | None
    convert_s: float | None
    marks: tuple[str, ...] = ()
    bytes_per_cell: float | None = None
    cells_per_request: float | None = None

    @property
    def from_bucket(self) -> bool:
        """Whether a bucket was read."""
        return (self.link_mbps, self.ttfb_ms) != (None, None)


def link(condition: Condition) -> Link:
    """What was read. A condition without these fields is of local files."""
    return getattr(condition, "link_mbps", None), getattr(condition, "ttfb_ms", None)


def reads_bucket(folder: Path, grid: str) -> bool:
    """Whether a grid has a successful measurement from a bucket."""
    records = jsonl.read(folder / f"{grid}.jsonl")
    return any(m.status == "ok" and link(m.condition) != (None, None) for m in records)


def rates(folder: Path, grid: str, dataset: str | None = None, *, bucket: bool = False) -> tuple[str, list[Rate]]:
    """The data set, and the rate of each loader for each regime, disk and link: CSR in random order, the fastest first.

    A loader's setting is `frontier.best`; if none of its settings is admitted, that nearest to random, or the fastest
    if no order was recorded. Loaders that hold all cells in memory are left out, and, of rows that read from a bucket,
    those that may read their own copies instead.

    dataset: None stands for that of the newest record. bucket: rows that read from a bucket, instead of the others; all
    settings, since no orders are recorded there. Raises UserError if there is no such row.
    """
    measured = [m for m in jsonl.read(folder / f"{grid}.jsonl") if m.condition.accelerator_ms is None]
    records = [m for m in measured if (link(m.condition) != (None, None)) == bucket]
    succeeded = [m for m in records if m.status == "ok"]
    if dataset is None and succeeded:
        dataset = max(succeeded, key=lambda m: m.provenance.get("utc", "")).condition.dataset
    rows = compare.of_one_table(summary.measured_on(dataset or "", succeeded))
    if not rows:
        where = " from a bucket" if bucket else ""
        raise UserError(
            f"{folder} has no successful measurement of {grid}{f' on {dataset}' if dataset else ''}{where}."
        )
    frame, mixed = _tables(rows, folder, grid, dataset)
    frame = frame[(frame["output"] == "csr") & (frame["order"] == "random") & frame["cells_per_s"].notna()]
    frame = frame[~frame["loader"].map(loaders.holds_all).astype(bool)]
    if bucket:
        frame = frame[~frame["loader"].map(loaders.keeps_copies).astype(bool)]
    frame = frame.assign(link=[link(condition) for condition in frame["condition"]])
    found = []
    for _, part in frame.groupby(["cache", "disk", "link"], sort=False, dropna=False):
        chosen = (every if bucket else choose)(part, mixed).sort_values("cells_per_s", ascending=False)
        found += [_rate(row, rows) for row in chosen.to_dict("records")]
    return dataset, found


def every(part: pd.DataFrame, mixed: pd.DataFrame) -> pd.DataFrame:
    """All rows of `part`, with the columns short_bits and admitted. Arguments: as for `choose`."""
    judged = _judged(part, mixed)
    unknown = part[~part["condition"].isin(judged["condition"])].assign(short_bits=np.nan, admitted=False)
    return pd.concat([one for one in (judged, unknown) if len(one)])


def _judged(part: pd.DataFrame, mixed: pd.DataFrame) -> pd.DataFrame:
    """The rows of `part` whose diversity is known, with the columns short_bits and admitted."""
    judged = frontier.settings(part, mixed)
    return part.iloc[:0].assign(short_bits=np.nan, admitted=False) if judged.empty else judged


def choose(part: pd.DataFrame, mixed: pd.DataFrame) -> pd.DataFrame:
    """One row for each loader, with the columns short_bits and admitted.

    part: rows of `summary.table` of one regime. mixed: as `mixing.table` returns it.
    """
    judged = _judged(part, mixed)
    best = frontier.best(judged)
    others = judged[~judged["loader"].isin(best["loader"])]
    nearest = others.assign(bits=others["short_bits"].clip(lower=frontier.FLOOR).round(3))
    nearest = nearest.sort_values(["bits", "cells_per_s"], ascending=[True, False]).drop_duplicates("loader")
    unknown = part[~part["loader"].isin(judged["loader"])].assign(short_bits=np.nan, admitted=False)
    unknown = unknown.sort_values("cells_per_s", ascending=False).drop_duplicates("loader")
    return pd.concat([one for one in (best, nearest, unknown) if len(one)])


def _tables(rows: Sequence[Measurement], folder: Path, grid: str, dataset: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The table of these measurements, and the diversity of their conditions (empty if it was not written)."""
    stem = folder / "figures" / f"{dataset}-{grid}"
    written = _csv(stem.with_name(f"{stem.name}-table.csv"))
    n_cells, values = (written[name].iloc[0] for name in ("n_cells", "values_per_cell")) if len(written) else (0, 0)
    n_cells = n_cells or catalogue.entries().get(dataset, {}).get("synthetic", {}).get("n_cells", 0)
    if not n_cells:
        raise UserError(f"How many cells {dataset} has is not known here: write the tables first, by make figures.")
    files = Dataset(
        name=dataset, paths=(), lengths=(int(n_cells),), n_genes=0, nnz=round(n_cells * values), x_format="csr",
        fingerprint=rows[0].provenance.get("dataset_fingerprint", ""), label_names=(),
    )  # fmt: skip
    conditions = dict.fromkeys(m.condition for m in rows)
    of_rows = Grid(name=grid, title="", timing=rows[0].timing, conditions=tuple(conditions))
    matching = [m for m in rows if m.provenance.get("dataset_fingerprint", "") == files.fingerprint]
    made = jsonl.read(folder / conversion.FILE, Conversion)
    frame = summary.table(of_rows, files, matching, made, [], folder)
    mixed = _csv(stem.with_name(f"{stem.name}-diversity.csv"))
    if mixed.empty:
        return frame, mixed
    # The order of the cells does not depend on the regime: one that was recorded for another judges this one, too.
    orders = {condition.key: condition.order_key for condition in conditions}
    same: dict[str, list[Condition]] = {}
    for condition in conditions:
        same.setdefault(condition.order_key, []).append(condition)
    mixed = mixed.assign(condition=[same.get(orders.get(key), []) for key in mixed["key"]])
    mixed = mixed.explode("condition").dropna(subset="condition")
    return frame, mixed.drop_duplicates(["condition", "label"], keep="last")


def _csv(path: Path) -> pd.DataFrame:
    return pd.read_csv(path) if path.exists() else pd.DataFrame()


def _rate(row: dict, rows: Sequence[Measurement]) -> Rate:
    condition = row["condition"]
    last = next(m for m in reversed(rows) if m.condition == condition)
    mbps, ttfb_ms = row["link"]
    from_bucket = row["link"] != (None, None)
    received = summary.read_bytes_per_cell(row) if from_bucket else 0.0
    requests = row["reads_per_1000"] if from_bucket else 0.0
    as_it_is = loaders.get(row["loader"]).store == UNCONVERTED
    return Rate(
        loader=row["loader"],
        setting=compare.setting(condition),
        cache=row["cache"],
        disk=condition.disk or "",
        link_mbps=mbps,
        ttfb_ms=ttfb_ms,
        cells_per_s=float(row["cells_per_s"]),
        low_cells_per_s=float(row["low_cells_per_s"]),
        high_cells_per_s=float(row["high_cells_per_s"]),
        repeats=int(row["repeats"]),
        cores=condition.cores or last.provenance.get("cores") or 1,
        short_bits=None if pd.isna(row["short_bits"]) else float(row["short_bits"]),
        admitted=bool(row["admitted"]),
        n_cells=int(row["n_cells"]),
        store_bytes=last.provenance.get("store_bytes"),
        convert_s=0.0 if as_it_is else None if pd.isna(row["convert_s"]) else float(row["convert_s"]),
        marks=tuple(row["marks"]),
        bytes_per_cell=float(received) if received > 0 else None,
        cells_per_request=float(1000 / requests) if requests > 0 else None,
    )
