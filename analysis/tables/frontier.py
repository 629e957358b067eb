"""Table of the best setting of each loader whose minibatches are as good as random, and of ours against the others.

python -m analysis.tables.frontier results/MACHINE [DATASET]

The records are those of the grid `frontier`. The data set is tahoe-mini unless another is named.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

import loaders
from analysis.diversity import mixing
from analysis.tables import command, compare, summary, text
from analysis.tables.compare import Measured
from harness.condition import FEWEST_FETCHES, Condition
from harness.data import catalogue
from harness.data.dataset import Dataset
from harness.errors import UserError
from harness.grids import CSR_BYTES, Grid, expand, grid_of
from harness.records import ceiling, conversion, jsonl
from harness.records.conversion import Conversion
from harness.records.measurement import Measurement
from loaders.protocol import UNCONVERTED

GRID = "frontier"
WITHIN = 0.05
"""The bits by which the labels of a minibatch may fall short of random."""
BUFFER_BYTES = 256_000_000
"""The largest buffer: about 22,000 cells of Tahoe-100M. It admits the 16,384 rows that the authors of scDataset and of
annbatch advise, and no loader may buy its diversity with a buffer several times as large."""
FLOOR = 0.01
"""Bits short of random that the recorded orders do not tell from 0: the front takes them for 0."""
GROUPS = {
    "h5ad": "h5ad files as they are",
    "store": "Converted stores",
    "memory": "All cells in memory, which an atlas does not allow",
}
HEAD = ["loader", "reads", "setting", "tried", "cells/s", "counts/s, M", "bits short", "buffer, MB", "net, MB"]


def settings(frame: pd.DataFrame, mixed: pd.DataFrame) -> pd.DataFrame:
    """The rows in random order whose diversity is known, with these columns more:

    short_bits, error_bits, worst: by how many bits a minibatch is short of random, its standard error, and the label
    for which that is most. buffer_bytes: the cells of a fetch as CSR. group: a key of GROUPS. front: whether no other
    setting of the same loader is both faster and as diverse. admitted: whether diversity, buffer and number of fetches
    allow a comparison with other loaders.

    frame: the part of a table of `summary.table` with one regime and one output. mixed: as `mixing.table` returns it.
    """
    if mixed.empty:
        return pd.DataFrame()
    worst = mixing.worst(mixed).rename(columns={"label": "worst"})
    rows = frame[(frame["order"] == "random") & frame["cells_per_s"].notna()]
    rows = rows.merge(worst[["condition", "short_bits", "error_bits", "worst"]], on="condition")
    rows["buffer_bytes"] = buffer_bytes(rows)
    rows["group"] = rows["loader"].map(group)
    rows["front"] = False
    for _, of_loader in rows.groupby("loader"):
        rows.loc[of_loader.index, "front"] = pareto(of_loader["short_bits"].clip(lower=FLOOR), of_loader["cells_per_s"])
    rows["admitted"] = (
        (rows["short_bits"] <= WITHIN) & (rows["buffer_bytes"] <= BUFFER_BYTES) & (rows["fetches"] >= FEWEST_FETCHES)
    )
    return rows


def buffer_bytes(frame: pd.DataFrame) -> pd.Series:
    """The cells of a fetch as CSR in bytes, for each row of a table of `summary.table`."""
    return frame["buffer_rows"] * frame["values_per_cell"] * CSR_BYTES


def group(loader: str) -> str:
    """The key of GROUPS to which a loader belongs."""
    if loaders.holds_all(loader):
        return "memory"
    return "h5ad" if loaders.get(loader).store == UNCONVERTED else "store"


def pareto(cost: pd.Series, gain: pd.Series) -> list[bool]:
    """Whether no other point has at most this cost and at least this gain, one of them better."""
    cost, gain = np.asarray(cost), np.asarray(gain)
    return [not np.any((cost <= c) & (gain >= g) & ((cost < c) | (gain > g))) for c, g in zip(cost, gain, strict=True)]


def best(rows: pd.DataFrame) -> pd.DataFrame:
    """The fastest admitted row of each loader, the fastest loader first, of those with the most repeats.

    rows: as `settings` returns them.
    """
    admitted = rows[rows["admitted"]]
    repeated = admitted[admitted["repeats"] == admitted.groupby("loader")["repeats"].transform("max")]
    return repeated.sort_values("cells_per_s", ascending=False).drop_duplicates("loader")


def is_finished(measurements: Iterable[Measurement]) -> bool:
    """Whether every setting of the grid was tried on a data set, of which these are all measurements.

    Before that, a comparison of best settings favours the loaders of which more settings were tried.
    """
    tried = {replace(m.condition, dataset="any") for m in summary.of_one_code(measurements)}
    return tried.issuperset(expand(GRID, "any").conditions)


def markdown(frame: pd.DataFrame, mixed: pd.DataFrame, measurements: Mapping[Condition, Sequence[Measurement]]) -> str:
    """For each regime and output, a table for each of GROUPS, and the ratios of ours to the best of the others.

    frame: a table of `summary.table`. measurements: those of which it was made, as `summary.rows_of` returns them.
    """
    rendered = []
    measured = compare.by_condition(m for of_one in measurements.values() for m in of_one)
    spread = compare.spread(frame.attrs.get("chance", []))
    for title, part in text.parts(frame):
        for output, of_output in part.groupby("output"):
            rows = settings(of_output, mixed)
            if rows.empty:
                continue
            rendered.append(f"Regime {title}, {output}:")
            for name, heading in GROUPS.items():
                if len(of_group := rows[rows["group"] == name]):
                    rendered += [f"{heading}:", _table(of_group)]
            rendered += [
                "Ours against the best of the others:",
                compare.markdown(headline(rows, measured, spread)).rstrip(),
                *_notes(rows, of_output),
            ]
    if missing := sum(not of_one for of_one in measurements.values()):
        of = len(measurements)
        rendered.append(f"{missing} of the grid's {of} settings are not measured yet: the best may change.")
    chance = frame.attrs.get("chance")
    rendered.append(text.chance(chance) if chance else "There is no A/A pair, so small differences may be chance.")
    return "\n\n".join(rendered) + "\n"


def _table(rows: pd.DataFrame) -> str:
    """One line for each loader of a group: its best setting, or that it has none."""
    lines = [HEAD, ["---"] * 3 + ["---:"] * 6]
    chosen = best(rows)
    rest = [name for name in rows["loader"].unique() if name not in set(chosen["loader"])]
    for row in chosen.to_dict("records"):
        lines.append([*_reads(row["loader"], _setting(row["condition"]), rows), *_numbers(row)])
    for name in sorted(rest):
        lines.append([*_reads(name, _why(rows[rows["loader"] == name]), rows), *["–"] * 5])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _why(rows: pd.DataFrame) -> str:
    """Why none of a loader's settings is admitted."""
    diverse = rows[rows["short_bits"] <= WITHIN]
    if diverse.empty:
        return f"none: at least {rows['short_bits'].min():.2f} bits short"
    small = diverse[diverse["buffer_bytes"] <= BUFFER_BYTES]
    return "none: too few fetches" if len(small) else "none: the buffers are too large"


def _reads(loader: str, setting: str, rows: pd.DataFrame) -> list[str]:
    reads = "h5ad as it is" if loaders.get(loader).store == UNCONVERTED else f"its store, `{loaders.get(loader).store}`"
    return [f"`{loader}`", reads, setting, str((rows["loader"] == loader).sum())]


def _setting(condition: Condition) -> str:
    """The settings without the number of cores, which is the same in the whole grid."""
    return compare.setting(replace(condition, cores=None))


def _numbers(row: dict[str, object]) -> list[str]:
    spread = (
        "" if pd.isna(row["low_cells_per_s"]) else f" ({row['low_cells_per_s']:,.0f} to {row['high_cells_per_s']:,.0f})"
    )
    error = "" if pd.isna(row["error_bits"]) else f" ± {row['error_bits']:.3f}"
    return [
        f"{row['cells_per_s']:,.0f}{spread}",
        f"{row['counts_per_s'] / 1e6:,.0f}",
        f"{row['short_bits']:.3f}{error}",
        f"{row['buffer_bytes'] / 1e6:,.0f}",
        "–" if pd.isna(row["net_bytes"]) else f"{row['net_bytes'] / 1e6:,.0f}",
    ]


def headline(rows: pd.DataFrame, measured: Measured, spread: float) -> list[tuple[str, compare.Ratio | None]]:
    """The ratios of best setting to best setting: ours on h5ad to the best other on h5ad; ours on each converted store
    to the best other on any converted store.
    """
    chosen = best(rows)
    ours = chosen["loader"].map(compare.is_ours).astype(bool)
    ratios = []
    for name in ("h5ad", "store"):
        of_group = chosen[chosen["group"] == name]
        others = of_group[~ours[of_group.index]].head(1)
        for theirs in others.itertuples():
            for row in of_group[ours[of_group.index]].itertuples():
                value = compare.ratio(measured, row.condition, theirs.condition, spread)
                ratios.append((f"`{row.loader}` {_setting(row.condition)} / {_named(theirs)}", value))
    return ratios


def _named(row: object) -> str:
    where = "h5ad" if row.group == "h5ad" else "a converted store"
    return f"the best other on {where}, `{row.loader}` {_setting(row.condition)}"


def _notes(rows: pd.DataFrame, measured: pd.DataFrame) -> list[str]:
    notes = [
        f"Admitted are settings at most {WITHIN:g} bits short of random for every label, with a buffer of at most "
        f"{BUFFER_BYTES / 1e6:.0f} MB as CSR, and with at least {FEWEST_FETCHES} fetches in the window."
    ]
    if fewer := (rows["repeats"] < rows["repeats"].max()).sum():
        notes.append(
            f"{fewer} of {len(rows)} settings have fewer repeats than the others: the best of a loader is one of those "
            "with the most."
        )
    few = rows[rows["fetches"] < FEWEST_FETCHES]
    if names := ", ".join(f"`{row.loader}` {_setting(row.condition)}" for row in few.itertuples()):
        notes.append(f"Left out, with fewer fetches: {names}.")
    if unknown := sorted(set(measured["loader"]) - set(rows["loader"])):
        names = ", ".join(f"`{name}`" for name in unknown)
        notes.append(f"Without a successful measurement in random order, or without a recorded order: {names}.")
    return notes


def table(folder: Path, spec: str) -> str:
    """The table of the grid `frontier` on a data set, as markdown. folder: a machine's folder.

    Raises UserError if it was not measured, or if the data set has no labels or no order was recorded.
    """
    dataset = catalogue.load(spec)
    grid = grid_of(GRID, dataset)
    read = _read(grid, dataset, folder)
    if read is None:
        raise UserError(f"{folder} holds no measurement of {GRID} on {dataset.name}.")
    if read[1].empty:
        raise UserError(f"{dataset.name} has no labels, or {folder} no recorded order: diversity cannot be judged.")
    return markdown(*read)


def _read(
    grid: Grid, dataset: Dataset, folder: Path
) -> tuple[pd.DataFrame, pd.DataFrame, dict[Condition, list[Measurement]]] | None:
    """The table of a grid, the diversity of its conditions, and its measurements; None if there is no measurement."""
    measurements = jsonl.read(folder / f"{grid.name}.jsonl")
    rows = summary.rows_of(grid, dataset, measurements)
    if not any(rows.values()):
        return None
    conversions = jsonl.read(folder / conversion.FILE, Conversion)
    frame = summary.table(grid, dataset, measurements, conversions, ceiling.read(folder), folder)
    return frame, mixing.table(frame, dataset, folder), rows


if __name__ == "__main__":
    command.run(__doc__, table)
