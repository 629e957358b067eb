"""The verdict on a claim, by the records in a machine's folder."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from analysis.diversity import entropy
from analysis.tables.claims import of_slaf
from analysis.tables.claims.laws import computed
from analysis.tables.claims.ledger import Claim
from analysis.tables.compare import by_condition
from analysis.tables.ratios import fits, ratios
from analysis.tables.summary import interval, measured_on, of_one_code
from harness.condition import FEWEST_FETCHES, Condition
from harness.records import cost, jsonl, orders, training
from harness.records.measurement import Measurement

VERDICTS = ("reproduced", "differs", "in shape", "not in shape", "not measured", "computed", "untestable here")
LEAST_REPEATS = 3
DATASETS = ("tahoe", "cells-2e6", "tahoe-mini")
"""The data set that most of the documents measured, and its substitutes. Records of the first that has any are used."""
OF_SHAPES = (*DATASETS, "tahoe-chunks")
"""The same for shapes, which compare rows of one set with one another."""
NOT_COMPARED = {"dataset", "seed", "cores", "memory_fraction", "memory_limit_bytes", "knobs"}
"""Fields of a condition that may have any value. Every other has the value that the claim states, or its default."""
NOT_OF_THE_ORDER = {"output", "tokens", "cache", "disk", "processes", "consumer_ms"}
"""The fields on which the order of the cells does not depend."""
Plates = Mapping[str, np.ndarray]
"""The plate of each cell, by the fingerprint of the data set."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The result for one claim.

    verdict: one of VERDICTS. measured: the median over repeats, or the mean entropy of a recorded order, in the claim's
    unit. low, high: the interval of the median. error: the standard error of the mean. law: what a formula gives.
    because: what a claim that was not measured, or cannot be, waits for.
    """

    verdict: str
    measured: float = np.nan
    low: float = np.nan
    high: float = np.nan
    error: float = np.nan
    repeats: int = 0
    law: float = np.nan
    because: str = ""


def judge(claim: Claim, folder: Path, plates: Plates) -> Verdict:
    """Judges one claim by the records in a machine's folder, as the head of reproduction.md says."""
    if claim.kind == "law":
        return Verdict(verdict="computed", law=computed(**claim.law))
    if claim.kind == "untestable here":
        return Verdict(verdict="untestable here", because=claim.needs)
    if claim.kind == "entropy":
        return _entropy(claim, folder, plates)
    values, because = (_shape if claim.kind == "shape" else MEASURED[claim.by])(claim, folder)
    if not len(values):
        return Verdict(verdict="not measured", because=because)
    low, high = interval(values)
    statistics = {"measured": float(np.median(values)), "low": low, "high": high, "repeats": len(values)}
    if len(values) < LEAST_REPEATS:
        why = f"{len(values)} of {LEAST_REPEATS} repeats: {because}"
        return Verdict(verdict="not measured", because=why, **statistics)
    if claim.kind == "shape":
        return _in_shape(claim, statistics)
    return Verdict(verdict=_verdict(claim, statistics["measured"]), **statistics)


def _of_one_commit(records: Iterable[Any]) -> list[Any]:
    """The records of the newest committed code. Those of uncommitted code judge no claim."""
    return of_one_code(r for r in records if not r.provenance.get("git_dirty"))


def stated(side: Mapping[str, Any], free: set[str]) -> dict[str, Any]:
    """The setting of one side: what the claim states, and the defaults of all other fields but those in `free`."""
    return {f.name: f.default for f in fields(Condition) if f.name not in free} | dict(side)


def _ratio(claim: Claim, folder: Path) -> tuple[np.ndarray, str]:
    """The ratio of two sides' cells/s in each repeat that has both; cells/s, if there is one side."""
    sides = [stated(side, NOT_COMPARED) for side in claim.sides]

    def values(dataset: str) -> list[float]:
        usable = _rows(measured_on(dataset, jsonl.read(folder / f"{claim.grid}.jsonl")), sides)
        return [ours / (theirs if claim.theirs else 1) for ours, theirs in ratios(usable, sides[0], sides[-1])]

    names = ",".join(dict.fromkeys(side["loader"] for side in sides))
    command = f"GRID={claim.grid} LOADERS={names} REPEAT={LEAST_REPEATS} make bench"
    return _first_data_set(values), _why_not(claim, folder, sides) or command


def _rows(measured: Iterable[Measurement], sides: Sequence[Mapping[str, Any]]) -> list[Measurement]:
    """The rows that may judge: of one of the sides, of whole windows, of the newest code."""
    rows = (m for m in measured if m.status == "ok" and m.fetches >= FEWEST_FETCHES)
    return _of_one_commit(m for m in rows if any(fits(m.condition, side) for side in sides))


def _why_not(claim: Claim, folder: Path, sides: Sequence[Mapping[str, Any]]) -> str:
    """Why a side could not be measured, by the newest code that tried; "" if it could, or if nobody tried."""
    datasets = OF_SHAPES if claim.kind == "shape" else DATASETS
    tried = [m for m in jsonl.read(folder / f"{claim.grid}.jsonl") if m.condition.dataset in datasets]
    for side in sides:
        rows = _of_one_commit(m for m in tried if fits(m.condition, side))
        if rows and all(m.status != "ok" for m in rows):
            return f"{side['loader']} was tried here: {rows[-1].reason}"
    return ""


def _shape(claim: Claim, folder: Path) -> tuple[np.ndarray, str]:
    """The product of some sides' cells/s over that of others, in each repeat that has all of them."""
    sides = [stated(side, NOT_COMPARED) for side in claim.sides]
    tops = len(claim.shape["product"])

    def values(dataset: str) -> list[float]:
        usable = _rows(measured_on(dataset, jsonl.read(folder / f"{claim.grid}.jsonl")), sides)
        rates: list[dict[int, float]] = [{} for _ in sides]
        for condition, repeats in by_condition(usable).items():
            for rate in (rate for side, rate in zip(sides, rates, strict=True) if fits(condition, side)):
                rate |= {n: max(m.cells_per_s, rate.get(n, 0.0)) for n, m in repeats.items()}  # the fastest that fits
        complete = sorted(set.intersection(*(set(rate) for rate in rates)))
        return [prod(rate[n] for rate in rates[:tops]) / prod(rate[n] for rate in rates[tops:]) for n in complete]

    names = ",".join(dict.fromkeys(side["loader"] for side in sides))
    command = f"GRID={claim.grid} LOADERS={names} REPEAT={LEAST_REPEATS} make bench"
    return _first_data_set(values, OF_SHAPES), _why_not(claim, folder, sides) or command


def _in_shape(claim: Claim, statistics: Mapping[str, Any]) -> Verdict:
    """A shape holds if the whole interval over repeats is between its bounds, and does not if all of it is outside."""
    least, most = claim.shape.get("least", -np.inf), claim.shape.get("most", np.inf)
    low, high = statistics["low"], statistics["high"]
    if least <= low and high <= most:
        return Verdict(verdict="in shape", **statistics)
    if high < least or most < low:
        return Verdict(verdict="not in shape", **statistics)
    because = f"a bound lies within the repeats: more of them, GRID={claim.grid} make bench"
    return Verdict(verdict="not measured", because=because, **statistics)


def _score(claim: Claim, folder: Path) -> tuple[np.ndarray, str]:
    """Macro-F1 of a head trained in one order, for each seed; divided by that in a second, if the claim names one.

    Nothing, if no order reaches the floor of the claim.
    """
    arms = [arm for arm in (claim.ours, claim.theirs) if arm]
    trained = _of_one_commit(run for run in jsonl.read(folder / training.FILE, training.Run) if run.arm in arms)

    def f1(dataset: str, arm: str) -> dict[int, float]:
        runs = [run for run in trained if (run.dataset, run.arm) == (dataset, arm)]
        return {run.seed: run.scores[claim.head][claim.test]["macro_f1"] for run in runs}

    def values(dataset: str) -> list[float]:
        ours = f1(dataset, claim.ours)
        theirs = f1(dataset, claim.theirs) if claim.theirs else dict.fromkeys(ours, 1.0)
        return [ours[seed] / theirs[seed] for seed in sorted(ours) if theirs.get(seed)]

    medians = [np.median(list(scores.values())) for d in DATASETS for arm in arms if (scores := f1(d, arm))]
    if medians and max(medians) < claim.floor:
        return np.array([]), f"no order reaches the {claim.floor:g} of a constant prediction: nothing can be compared"
    return _first_data_set(values), "make train"


def _cost(claim: Claim, folder: Path) -> tuple[np.ndarray, str]:
    """The ratio of the cost of a cell with two methods or sizes of one operation, for each repeat."""
    newest = _of_one_commit(c for c in jsonl.read(folder / cost.FILE, cost.Cost) if c.law == claim.operation)
    latest = {(c.dataset, c.method, c.size): c.us_per_cell for c in newest}

    def values(dataset: str) -> list[float]:
        sides = (latest.get((dataset, *side), []) for side in (claim.ours, claim.theirs))
        return [a / b for a, b in zip(*sides, strict=False)]

    return _first_data_set(values), "python -m harness cost-curves"


def _first_data_set(values: Callable[[str], list[float]], datasets: Sequence[str] = DATASETS) -> np.ndarray:
    """The values of the first of these data sets that has any; empty if none has."""
    return np.array(next(filter(None, map(values, datasets)), []))


MEASURED = {"ratio": _ratio, "score": _score, "cost": _cost} | of_slaf.BY
"""By way of measuring, a function that returns the value of each repeat, and why there are no more."""


def _entropy(claim: Claim, folder: Path, plates: Plates) -> Verdict:
    """Compares the published entropy with that of the longest recorded order at the settings of the claim.

    The verdict also holds what the formula gives for these settings, if there is one.
    """
    (side,) = claim.sides
    law = computed("exact", **{name: side[name] for name in ("batch_size", "block_size", "fetch_factor")})
    command = f"GRID={claim.grids[-1]} LOADERS={side['loader']} make bench"
    order = _longest_order(claim, folder, plates)
    if order is None:
        return Verdict(verdict="not measured", law=law, because=command)
    batches, fetch_rows, codes = order
    # Minibatches of one fetch are alike, and those of several workers alternate: a group is a fetch of every worker.
    group = max(1, fetch_rows // side["batch_size"]) * max(1, side["workers"])
    bits = entropy.of_batches(batches, codes, side["batch_size"])
    mean, error = entropy.mean_and_error(bits, group)
    fetches = len(bits) // group
    statistics = {"measured": mean, "error": error, "repeats": fetches, "law": law}
    if fetches < FEWEST_FETCHES:
        why = f"{fetches} of {FEWEST_FETCHES} whole fetches in the recorded order: {command}"
        return Verdict(verdict="not measured", because=why, **statistics)
    if error > claim.slack / 2:
        why = f"the recorded order is too short: its standard error is {error:.2f} bits: {command}"
        return Verdict(verdict="not measured", because=why, **statistics)
    return Verdict(verdict=_verdict(claim, mean), **statistics)


def _longest_order(claim: Claim, folder: Path, plates: Plates) -> tuple[list[np.ndarray], int, np.ndarray] | None:
    """(its minibatches, rows of a fetch, plate of each cell), of the first data set of DATASETS that has an order."""
    setting = stated(claim.sides[0], NOT_COMPARED | NOT_OF_THE_ORDER)
    measured = [m for grid in claim.grids for m in jsonl.read(folder / f"{grid}.jsonl")]
    for dataset in DATASETS:
        recorded = {}
        for m in measured_on(dataset, measured):
            fingerprint = m.provenance.get("dataset_fingerprint")
            if m.status == "ok" and fingerprint in plates and fits(m.condition, setting):
                path = orders.path(folder, m.condition, fingerprint)
                if path not in recorded and path.exists():
                    recorded[path] = (*orders.read(path), plates[fingerprint])
        if recorded:
            return max(recorded.values(), key=lambda order: sum(map(len, order[0])))
    return None


def _verdict(claim: Claim, measured: float) -> str:
    return "reproduced" if abs(measured - claim.published) <= claim.slack else "differs"
