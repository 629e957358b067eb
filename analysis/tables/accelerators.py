"""Table of the most emulated accelerators that each loader feeds at a utilisation of 90 %.

    python -m analysis.tables.accelerators results/MACHINE [DATASET]

The data set is tahoe-mini unless another is named.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

import loaders
from analysis.tables import command, compare, doubts
from analysis.tables.summary import interval, measured_on
from harness.condition import FEWEST_FETCHES, LEAST_UTILISATION, Condition
from harness.errors import UserError
from harness.records import jsonl
from harness.records.measurement import Measurement

GRID = "accelerators"
ARM = ["accelerator_ms", "consumer"]
OURS = "native"  # ours from h5ad files as they are


def table(measurements: Iterable[Measurement]) -> pd.DataFrame:
    """One row for each condition with emulated accelerators.

    measurements: of one table. The last of each repeat is used, without the second of an A/A pair.

    Columns: loader, setting, accelerator_ms, consumer; accelerators, the median over repeats, with low and high, its
    range or interval; cells_per_s, what as many take; utilisation, at as many, or of one if none is fed; at_least,
    whether no probe found too many; fetches, the fewest of a window; repeats; cool, marks,
    dirty, as of `summary.table`; reason, why there is no number. Numbers are nan if there are none.
    """
    latest = {
        (m.condition, m.repeat): m for m in measurements if m.condition.accelerator_ms is not None and not m.again
    }
    by_condition: dict[Condition, list[Measurement]] = {}
    for m in latest.values():
        by_condition.setdefault(m.condition, []).append(m)
    frame = pd.DataFrame([_row(condition, rows) for condition, rows in by_condition.items()])
    return frame.sort_values([*ARM, "accelerators"], ascending=[True, False, False], ignore_index=True)


def _row(condition: Condition, rows: list[Measurement]) -> dict[str, object]:
    ok = [m for m in rows if m.status == "ok"]
    fed = np.array([m.accelerators for m in ok])
    low, high = interval(fed)
    return {
        "loader": condition.loader,
        "setting": compare.setting(condition),
        "accelerator_ms": condition.accelerator_ms,
        "consumer": condition.consumer,
        "accelerators": np.median(fed) if ok else np.nan,
        "low": low,
        "high": high,
        "cells_per_s": np.median([m.cells_per_s for m in ok]) if ok else np.nan,
        "utilisation": np.median([_utilisation(m) for m in ok]) if ok else np.nan,
        "at_least": any(_is_bound(m) for m in ok),
        "fetches": min((m.fetches for m in ok), default=np.nan),
        "repeats": len(ok),
        "cool": any(doubts.cool(m) for m in ok),
        "marks": list(ok[-1].marks.values()) if ok else [],
        "dirty": any(m.provenance.get("git_dirty") for m in rows),
        "reason": None if ok else f"{rows[-1].status}, {rows[-1].reason}",
    }


def _utilisation(m: Measurement) -> float:
    """That of as many accelerators as were fed, or of one."""
    return {n: share for n, share, _ in m.probes}[max(1, m.accelerators)]


def _is_bound(m: Measurement) -> bool:
    """Whether the search ended at the most that it tries, all of which were fed."""
    return all(share >= LEAST_UTILISATION for _, share, _ in m.probes)


def arm(accelerator_ms: float, consumer: str) -> str:
    """A step time and a consumer as text."""
    return f"{accelerator_ms:g} ms" + (", one core busy" if consumer == "busy" else "")


def losses(frame: pd.DataFrame) -> list[str]:
    """For each arm, a sentence with the loaders that feed more accelerators than ours.

    All are compared with ours from h5ad files as they are, and with ours over the same store. frame: as of `table`.
    """
    sentences = []
    for name, rows in frame[frame["accelerators"].notna()].groupby(ARM, sort=False):
        is_ours = rows["loader"].map(compare.is_ours)
        if OURS not in set(rows["loader"]):
            sentences.append(f"At {arm(*name)} `{OURS}` has no number here.")
        stores = rows["loader"].map(lambda loader: loaders.get(loader).store)
        for ours in rows[is_ours].itertuples():
            same_store = stores == loaders.get(ours.loader).store
            more = rows[~is_ours & (same_store | (ours.loader == OURS)) & (rows["accelerators"] > ours.accelerators)]
            if len(more):
                names = ", ".join(f"`{row.loader}` {row.setting} ({row.accelerators:g})" for row in more.itertuples())
                sentences.append(f"At {arm(*name)} `{ours.loader}` feeds {ours.accelerators:g}, and more: {names}.")
    return sentences


def chance(measurements: Iterable[Measurement]) -> list[str]:
    """A sentence for each A/A pair: the numbers fed in the two measurements of a condition in one repeat."""
    fed = {(m.condition, m.repeat, m.again): m.accelerators for m in measurements if m.status == "ok"}
    sentences = []
    for (condition, repeat, is_again), again in fed.items():
        if is_again and condition.accelerator_ms is not None and (condition, repeat, False) in fed:
            where = f"`{condition.loader}`, {arm(condition.accelerator_ms, condition.consumer)}"
            numbers = f"{fed[condition, repeat, False]} and {again} accelerators"
            sentences.append(f"A/A, the same condition twice in a repeat ({where}): {numbers}.")
    return sentences


def markdown(frame: pd.DataFrame, pairs: Sequence[str] = ()) -> str:
    """Where ours loses; a line for each loader and setting, with a column for each arm; why numbers are missing.

    pairs: of `chance`.
    """
    arms = list(frame.groupby(ARM).groups)
    by_line = {line: rows.set_index(ARM) for line, rows in frame.groupby(["loader", "setting"], sort=False)}
    lost = losses(frame)
    lines = [
        "Where ours loses:",
        "",
        *(f"- {sentence}" for sentence in lost or ["No loader here feeds more than ours."]),
    ]
    lines += ["", "| " + " | ".join(["loader", "setting", *(arm(*name) for name in arms), "repeats"]) + " |"]
    lines.append("| --- | --- |" + " ---: |" * (len(arms) + 1))
    for (loader, setting), rows in by_line.items():
        cells = [_cell(rows.loc[name]) if name in rows.index else "–" for name in arms]
        lines.append(f"| `{loader}` | {setting} | {' | '.join(cells)} | {rows['repeats'].min()} |")
    reasons = [*pairs]
    reasons += [f"{row.loader} {row.setting}: {row.reason}." for row in frame[frame["reason"].notna()].itertuples()]
    reasons += [f"† {row.loader}: {mark}." for row in frame.itertuples() for mark in row.marks]
    if (frame["fetches"] < FEWEST_FETCHES).any():
        reasons.append(f"\\* fewer than {FEWEST_FETCHES} fetches in the window: chance decides much of it.")
    if frame["cool"].any():
        reasons.append("§ the warm-up was less than an epoch, which would have taken too long.")
    reasons += ["‡ made with uncommitted code."] if frame["dirty"].any() else []
    return "\n".join([*lines, *(f"\n{reason}" for reason in dict.fromkeys(reasons))]) + "\n"


def _cell(row: pd.Series) -> str:
    if pd.isna(row["accelerators"]):
        return "–"
    text = f"{'at least ' if row['at_least'] else ''}{row['accelerators']:g}"
    if not pd.isna(row["low"]):
        text += f" ({row['low']:g} to {row['high']:g})"
    if not row["accelerators"]:
        text += f", one at {row['utilisation']:.0%}"
    signs = zip("†*§‡", (row["marks"], row["fetches"] < FEWEST_FETCHES, row["cool"], row["dirty"]), strict=True)
    return text + "".join(sign for sign, holds in signs if holds)


def of_folder(folder: Path, dataset: str) -> str:
    """The table of a machine's folder; "" if it has no such measurements."""
    rows = compare.of_one_table(measured_on(dataset, jsonl.read(folder / f"{GRID}.jsonl"), pairs=True))
    return markdown(table(rows), chance(rows)) if rows else ""


def _printed(folder: Path, dataset: str) -> str:
    if text := of_folder(folder, dataset):
        return text
    raise UserError(f"{folder} has no measurement of the grid {GRID} on {dataset}.")


if __name__ == "__main__":
    command.run(__doc__, _printed)
