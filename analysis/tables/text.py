"""The table of a grid as text for a terminal, as markdown, and as CSV, which can be read back."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from harness.condition import FEWEST_FETCHES

REGIMES = {
    "first": "`first` (from an empty page cache, within the first epoch)",
    "warm": "`warm` (the store in memory, after a whole epoch)",
    "bounded": "`bounded` (all memory of the loader limited to less than a quarter of the store)",
    "cold": "of the first edition of the rules (an empty page cache at first; later epochs may come from memory)",
}
LATER = {
    "counts_per_s": np.nan,
    "tokens_per_s": np.nan,
    "net_bytes": np.nan,
    "reads_per_1000": np.nan,
    "cool": False,
    "disk": "",
}
"""Columns that tables of the first edition of the rules lack, with the value that stands for "not measured"."""
SEPARATOR = " | "  # between several texts in one CSV field


def lines(frame: pd.DataFrame) -> list[dict[str, str]]:
    """The rows as text by column name, in the order of `by_speed`.

    The columns on tokens, conversion, ceiling, consumer and warm cache are present only if some row has a value for
    them.
    """
    optional = ("convert_s", "times_warm", "share_of_ceiling", "net_bytes", "reads_per_1000", "tokens_per_s")
    shown = {name: frame[name].notna().any() for name in optional}
    shown["consumer_ms"] = frame["consumer_ms"].any()
    return [_line(row, shown) for row in by_speed(frame).to_dict("records")]


def _line(row: Mapping[str, object], shown: Mapping[str, bool]) -> dict[str, str]:
    """One row as text; "–" where nothing was measured. shown: whether each optional column is present."""

    def number(value: object, text: str) -> str:
        return "–" if value is None or pd.isna(value) else text.format(value)

    rate = number(row["cells_per_s"], "{:,.0f}")
    if not pd.isna(row["low_cells_per_s"]):
        rate += f" ({row['low_cells_per_s']:,.0f} to {row['high_cells_per_s']:,.0f})"
    peak = row["peak_rss_bytes"]
    entropy_text = number(row["entropy_bits"], "{:.2f}")
    if entropy_text != "–":
        error = row["entropy_error_bits"]
        entropy_text += "" if pd.isna(error) else f" ± {error:.2f}"
        entropy_text += number(row["ideal_bits"], " of {:.2f}")
    mark = "".join(
        sign
        for sign, holds in (
            ("†", row["marks"]),
            ("*", row["fetches"] < FEWEST_FETCHES),
            ("§", row["cool"]),
            ("‡", row["dirty"]),
        )
        if holds
    )
    costs = {
        "convert, s": number(row["convert_s"], "{:,.0f}"),
        "pays after, epochs": "never"
        if row["pays_after_epochs"] == np.inf
        else number(row["pays_after_epochs"], "{:,.1f}"),
    }
    return {
        "loader": " ".join(filter(None, [str(row["loader"]), str(row["other"])])) + mark,
        "order": str(row["order"]),
        "output": str(row["output"]),
        "block": number(row["block_size"], "{:.0f}"),
        "fetch": number(row["fetch_factor"], "{:.0f}"),
        **({"tokens/s": number(row["tokens_per_s"], "{:,.0f}")} if shown["tokens_per_s"] else {}),
        "cells/s": rate if row["status"] == "ok" else str(row["status"]),
        "counts/s, M": number(row["counts_per_s"] / 1e6, "{:,.0f}"),
        "x AnnLoader": number(row["times_baseline"], "{:.1f}"),
        "entropy, bits": entropy_text,
        **({"net, MB": number(row["net_bytes"] / 1e6, "{:,.0f}")} if shown["net_bytes"] else {}),
        "gross, MB": number(np.nan if pd.isna(peak) else peak / 1e6, "{:,.0f}"),
        "CPU, us/cell": number(row["cpu_us_per_cell"], "{:,.0f}"),
        "disk/CSR": number(row["read_per_delivered"], "{:.2f}"),
        **({"reads/1,000 cells": number(row["reads_per_1000"], "{:,.0f}")} if shown["reads_per_1000"] else {}),
        **({"of ceiling": _ceiling(row)} if shown["share_of_ceiling"] else {}),
        **({"waiting": number(row["waiting_share"], "{:.0%}")} if shown["consumer_ms"] else {}),
        **({"x warm": number(row["times_warm"], "{:.2g}")} if shown["times_warm"] else {}),
        **(costs if shown["convert_s"] else {}),
    }


def _ceiling(row: Mapping[str, object]) -> str:
    if pd.isna(row["share_of_ceiling"]):
        return "–"
    return f"{row['share_of_ceiling']:.0%} {row['binds']}"


def footnotes(frame: pd.DataFrame) -> list[str]:
    """The meaning of the marks in the table, and why rows or repeats have no throughput."""
    notes = []
    for row in frame.to_dict("records"):
        notes += [f"† {row['loader']}: {reason}." for reason in row["marks"]]
    if (frame["fetches"] < FEWEST_FETCHES).any():
        notes.append(f"* fewer than {FEWEST_FETCHES} fetches in the window: chance decides much of it.")
    if frame["cool"].any():
        notes.append("§ the warm-up was less than an epoch, which would have taken too long.")
    if frame["dirty"].any():
        notes.append("‡ made with uncommitted code.")
    if ratios := frame.attrs.get("chance"):
        notes.append(chance(ratios))
    for row in frame[frame["reason"].notna()].to_dict("records"):
        notes.append(f"{row['condition']}: {'' if row['status'] == 'ok' else row['status'] + ', '}{row['reason']}.")
    return list(dict.fromkeys(notes))


def chance(ratios: Sequence[float]) -> str:
    """The ratios within A/A pairs (`summary.chance`) as a sentence."""
    return f"A/A, the same condition twice in a repeat: {min(ratios):.2f} to {max(ratios):.2f} times."


def parts(frame: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """(regime and disk, the rows measured under them), since one table never mixes them; nor cells and their tokens."""
    have_tokens = frame["output"].str.endswith(" tokens")
    return [
        (f"{REGIMES[cache]}{f', disk {disk}' if disk else ''}{', tokens' if tokens else ''}", rows)
        for (cache, disk, tokens), rows in frame.groupby(["cache", "disk", have_tokens], sort=False)
    ]


def markdown(frame: pd.DataFrame) -> str:
    """One table for each of `parts`, and the footnotes, as markdown."""
    rendered = []
    for title, rows in parts(frame):
        body = lines(rows)
        head = list(body[0])
        numeric = head[3:]
        rule = ["---:" if name in numeric else "---" for name in head]
        text = [head, rule, *([line[name] for name in head] for line in body)]
        rendered += [f"Regime {title}:", "\n".join("| " + " | ".join(line) + " |" for line in text)]
    return "\n\n".join([*rendered, *(note.replace("*", "\\*", 1) for note in footnotes(frame))]) + "\n"


def by_speed(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows sorted by output, then by order (random before stream), then by throughput, the fastest first."""
    return frame.sort_values(["output", "order", "cells_per_s"], ascending=[True, True, False], ignore_index=True)


def csv(frame: pd.DataFrame) -> str:
    """The table as CSV, one line for each condition, with the condition's key as a column."""
    flat = by_speed(frame).assign(
        key=lambda f: [c.key for c in f["condition"]],
        condition=lambda f: [str(c) for c in f["condition"]],
        marks=lambda f: [SEPARATOR.join(m) for m in f["marks"]],
        doubts=lambda f: [SEPARATOR.join(d) for d in f["doubts"]],
    )
    columns = [name for name in flat if name != "condition"]
    return flat[[*columns, "condition"]].to_csv(index=False, float_format="%.6g")


def read_csv(path: Path) -> pd.DataFrame:
    """Reads a table that `csv` wrote. The column "condition" holds text, not `Condition` objects."""
    frame = pd.read_csv(path, converters=dict.fromkeys(("marks", "doubts"), _split))
    frame = frame.assign(**{name: value for name, value in LATER.items() if name not in frame})
    return frame.fillna({"other": "", "disk": ""})


def _split(text: str) -> list[str]:
    return text.split(SEPARATOR) if text else []
