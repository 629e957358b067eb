"""Judges the published claims of claims.toml by the measurements of a machine."""

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.diversity import expected
from analysis.tables.ratios import ratios
from analysis.tables.summary import interval, measured_on
from harness.data.synthetic.cells import PLATE_ENTROPY_BITS, PLATES, shares_with_entropy
from harness.records import cost, jsonl, training

CLAIMS = Path(__file__).with_name("claims.toml")
LEAST_REPEATS = 3
BATCH = 64
DATASETS = ("tahoe", "tahoe-mini")
"""The data set that most of the papers measured, and its substitute."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The result for one claim.

    verdict: "reproduced", "differs" or "not run". measured: the median over repeats, in the claim's unit; for a claim
    of kind "law" the computed value. low, high: the 95 % interval of the median; nan for fewer than two repeats.
    because: for "not run", the reason or the command that makes the missing measurements; else "".
    """

    verdict: str
    measured: float = np.nan
    low: float = np.nan
    high: float = np.nan
    repeats: int = 0
    because: str = ""


def read() -> list[dict[str, Any]]:
    """The claims, in the order of the file."""
    return tomllib.loads(CLAIMS.read_text())["claim"]


def judge(claim: Mapping[str, Any], folder: Path) -> Verdict:
    """Judges one claim by the records in a machine's folder. Fewer than LEAST_REPEATS repeats count as "not run"."""
    if claim["kind"] == "none":
        return Verdict(verdict="not run", because=claim["because"])
    if claim["kind"] == "law":
        plates = shares_with_entropy(PLATES, PLATE_ENTROPY_BITS)
        bits = expected.exact(plates, BATCH, claim["block_size"], claim["fetch_factor"])
        return Verdict(verdict=_holds(claim, bits), measured=bits)
    values, command = MEASURED[claim["kind"]](claim, folder)
    if not len(values):
        return Verdict(verdict="not run", because=command)
    low, high = interval(values)
    statistics = {"measured": float(np.median(values)), "low": low, "high": high, "repeats": len(values)}
    if len(values) < LEAST_REPEATS:
        why = f"{len(values)} of {LEAST_REPEATS} repeats: {command}"
        return Verdict(verdict="not run", because=why, **statistics)
    return Verdict(verdict=_holds(claim, statistics["measured"]), **statistics)


def _ratio(claim: Mapping[str, Any], folder: Path) -> tuple[np.ndarray, str]:
    """(ratio of two conditions' cells/s, for each repeat with both; the command that measures it)."""
    measured = jsonl.read(folder / f"{claim['grid']}.jsonl")

    def values(dataset: str) -> list[float]:
        pairs = ratios(measured_on(dataset, measured), claim["ours"], claim["theirs"])
        return [ours / theirs for ours, theirs in pairs]

    return _first_data_set(values), f"GRID={claim['grid']} REPEAT={LEAST_REPEATS} make bench"


def _score(claim: Mapping[str, Any], folder: Path) -> tuple[np.ndarray, str]:
    """(macro-F1 of a head trained on one order of the cells, for each seed; the command that measures it).

    If the claim names a second order, each value is divided by the macro-F1 of that order with the same seed.
    """
    trained = jsonl.read(folder / training.FILE, training.Run)

    def f1(dataset: str, arm: str) -> dict[int, float]:
        runs = [run for run in trained if (run.dataset, run.arm) == (dataset, arm)]
        return {run.seed: run.scores[claim["head"]][claim["test"]]["macro_f1"] for run in runs}

    def values(dataset: str) -> list[float]:
        ours = f1(dataset, claim["ours"])
        theirs = f1(dataset, claim["theirs"]) if "theirs" in claim else dict.fromkeys(ours, 1.0)
        return [ours[seed] / theirs[seed] for seed in ours if theirs.get(seed)]

    return _first_data_set(values), "make train"


def _cost(claim: Mapping[str, Any], folder: Path) -> tuple[np.ndarray, str]:
    """(ratio of the costs per cell of two methods or sizes, for each repeat; the command that measures it)."""
    latest = {(c.dataset, c.law, c.method, c.size): c.us_per_cell for c in jsonl.read(folder / cost.FILE, cost.Cost)}

    def values(dataset: str) -> list[float]:
        sides = (latest.get((dataset, claim["law"], *side), []) for side in (claim["ours"], claim["theirs"]))
        return [a / b for a, b in zip(*sides, strict=False)]

    return _first_data_set(values), "python -m harness laws"


def _first_data_set(values: Callable[[str], list[float]]) -> np.ndarray:
    """The values of the first data set of DATASETS that has any; empty if none has."""
    return np.array(next(filter(None, map(values, DATASETS)), []))


MEASURED = {"ratio": _ratio, "score": _score, "cost": _cost}
"""By kind of claim, a function that returns the value of each repeat and the command that measures it."""


def _holds(claim: Mapping[str, Any], measured: float) -> str:
    """ "reproduced" if the measured value is within the claim's tolerance, else "differs".

    For a claim with `holds = "least"`, any value above the published one is "reproduced", too.
    """
    published = claim["published"]
    slack = claim["within"] if "within" in claim else claim["tolerance"] * published
    sound = measured >= published - slack and (claim["holds"] == "least" or measured <= published + slack)
    return "reproduced" if sound else "differs"


def table(folder: Path) -> pd.DataFrame:
    """One row for each claim: its text, the published value, and the fields of its verdict."""
    rows = []
    for claim in read():
        verdict = judge(claim, folder)
        kept = {name: claim.get(name, "") for name in ("id", "document", "says", "published", "unit", "wrong")}
        rows.append(kept | {"verdict": verdict.verdict} | {k: v for k, v in vars(verdict).items() if k != "verdict"})
    return pd.DataFrame(rows)


def markdown(frame: pd.DataFrame) -> str:
    """The number of claims with each verdict, and one markdown table for each document."""
    counts = frame["verdict"].value_counts()
    totals = [f"{counts.get(name, 0)} {name}" for name in ("reproduced", "differs", "not run")]
    lines = [f"{len(frame)} claims: {', '.join(totals)}.", ""]
    for document, claims in frame.groupby("document", sort=False):
        lines += [f"## {document}", "", "| claim | published | measured | verdict |", "| --- | ---: | ---: | --- |"]
        for row in claims.itertuples():
            measured = "–" if np.isnan(row.measured) else number(row.measured)
            if not np.isnan(row.low):
                measured += f" ({number(row.low)} to {number(row.high)})"
            why = f": {row.because}" if row.because else ""
            wrong = f" As printed it is wrong: {row.wrong}." if row.wrong else ""
            published = f"{number(row.published)} {row.unit}"
            lines.append(f"| {row.says}.{wrong} | {published} | {measured} | {row.verdict}{why} |")
        lines.append("")
    return "\n".join(lines)


def number(value: float) -> str:
    """A value of a claim as text: whole numbers from 100 on, else three significant digits."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def write(folder: Path) -> list[Path]:
    """Writes reproduction.md and reproduction.csv into a machine's folder."""
    frame = table(folder)
    text, numbers = folder / "reproduction.md", folder / "reproduction.csv"
    text.write_text(f"# What was claimed, and what this machine measured\n\n{markdown(frame)}")
    frame.to_csv(numbers, index=False, float_format="%.6g")
    return [text, numbers]
