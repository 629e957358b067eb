"""The throughput of one condition over that of another, and whether it differs by more than chance."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

import loaders
from analysis.tables.summary import interval, of_one_code
from harness.condition import FEWEST_FETCHES, Condition
from harness.records.measurement import Measurement

Measured = Mapping[Condition, Mapping[int, Measurement]]
"""The successful measurements by condition and repeat."""

RANDOM_ACCESS = ("annloader", "huggingface", "bionemo")
"""Libraries that read a minibatch at a time, in rows drawn one by one: block size 1 and fetch factor 1."""


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """The throughput of one condition (ours) over that of another (theirs).

    ours, theirs: medians over the repeats in which both were measured, in cells/s. low, high: of the ratios within
    these repeats, their range or interval (`summary.interval`); nan for one repeat. spread: as `spread` returns it.
    """

    ours: float
    theirs: float
    low: float
    high: float
    repeats: int
    spread: float

    @property
    def times(self) -> float:
        return self.ours / self.theirs

    @property
    def differs(self) -> bool:
        """Whether the ratio is outside those of a condition with itself."""
        return not 1 / self.spread <= self.times <= self.spread

    def __str__(self) -> str:
        within = "" if np.isnan(self.low) else f" ({number(self.low)} to {number(self.high)})"
        return (number(self.times) if self.differs else "no difference") + within


def number(times: float) -> str:
    """A ratio as text, with three significant digits or whole."""
    return f"{times:,.0f}" if times >= 100 else f"{times:#.3g}".rstrip(".")


def spread(chance: Sequence[float]) -> float:
    """The largest ratio, or inverse of one, within an A/A pair (`summary.chance`); 1 if there is no pair."""
    return max(max(chance), 1 / min(chance)) if len(chance) else 1.0


def of_one_table(measurements: Sequence[Measurement]) -> list[Measurement]:
    """The measurements that one table may hold: of one state of the code, one timing and one set of files.

    measurements: of one grid on one data set.
    """
    rows = of_one_code(measurements)
    if not rows:
        return []
    last = max(rows, key=lambda m: m.provenance.get("utc", ""))
    return [m for m in rows if _files(m) == _files(last) and m.timing == last.timing]


def _files(m: Measurement) -> str | None:
    return m.provenance.get("dataset_fingerprint")


def by_condition(measurements: Iterable[Measurement]) -> dict[Condition, dict[int, Measurement]]:
    """The successful measurements by condition and repeat: the last of each, without the second of an A/A pair."""
    latest = {(m.condition, m.repeat): m for m in measurements if not m.again}
    measured: dict[Condition, dict[int, Measurement]] = {}
    for (condition, repeat), m in latest.items():
        if m.status == "ok":
            measured.setdefault(condition, {})[repeat] = m
    return measured


def few(measured: Measured, condition: Condition) -> bool:
    """Whether any of the measurements has too few fetches to enter a ratio.

    One is enough: to leave out single repeats would leave out the slow ones.
    """
    return any(m.fetches < FEWEST_FETCHES for m in measured[condition].values())


def without_few(measured: Measured) -> dict[Condition, Mapping[int, Measurement]]:
    """The conditions that may enter a ratio."""
    return {condition: rows for condition, rows in measured.items() if not few(measured, condition)}


def fastest(measured: Measured, conditions: Iterable[Condition]) -> Condition | None:
    """The condition with the highest median throughput, of those with the most repeats; None if there is none."""

    def rank(condition: Condition) -> tuple[int, float]:
        rates = [m.cells_per_s for m in measured[condition].values()]
        return len(rates), np.median(rates)

    return max(conditions, key=rank, default=None)


def ratio(measured: Measured, ours: Condition, theirs: Condition, spread: float) -> Ratio | None:
    """The ratio of two conditions; None if no repeat has both."""
    pairs = [
        (m.cells_per_s, measured[theirs][repeat].cells_per_s)
        for repeat, m in sorted(measured[ours].items())
        if repeat in measured[theirs]
    ]
    if not pairs:
        return None
    ours_median, theirs_median = np.median(pairs, axis=0)
    low, high = interval(np.array([a / b for a, b in pairs]))
    return Ratio(
        ours=float(ours_median), theirs=float(theirs_median), low=low, high=high, repeats=len(pairs), spread=spread
    )


def is_ours(loader: str) -> bool:
    """Whether this is our loader, over the h5ad files or over a store of another loader."""
    return loader == "native" or loader.startswith("native_")


def blocks(condition: Condition) -> tuple[int | None, int] | None:
    """(block size, fetch factor), by default or as set; None for a loader that has none.

    The block size of a stream is None. Libraries that read single rows at random have (1, 1).
    """
    knobs = loaders.get(condition.loader).knobs | dict(condition.knobs)
    random = condition.order == "random"
    if condition.loader in RANDOM_ACCESS and not knobs.get("iterable_buffer"):
        return (1 if random else None, 1)
    if "fetch_factor" not in knobs:
        return None
    return (knobs.get("block_size") if random else None, knobs["fetch_factor"])


def surroundings(condition: Condition) -> Condition:
    """The condition without its loader and the loader's knobs."""
    return replace(condition, loader="", knobs=())


def equal(one: Condition, other: Condition) -> bool:
    """Whether two loaders read the same store with the same settings: blocks, fetches, and all that is no knob."""
    return (
        surroundings(one) == surroundings(other)
        and loaders.get(one.loader).store == loaders.get(other.loader).store
        and blocks(one) is not None
        and blocks(one) == blocks(other)
    )


def setting(condition: Condition) -> str:
    """The loader's own settings as text: blocks as (block size, fetch factor), then the others; "defaults" if none."""
    knobs = dict(condition.knobs)
    parts = []
    if {"block_size", "fetch_factor"} <= set(knobs):
        parts = [f"({knobs.pop('block_size')}, {knobs.pop('fetch_factor')})"]
    parts += [f"{name}={value}" for name, value in knobs.items()]
    parts += [f"workers={condition.workers}"] if condition.workers else []
    parts += [f"processes={condition.processes}"] if condition.processes > 1 else []
    parts += [f"cores={condition.cores}"] if condition.cores else []
    return " ".join(parts) or "defaults"


def markdown(rows: Iterable[tuple[str, Ratio | None]], without: str = "not measured") -> str:
    """A table of ratios by name. without: what stands in place of a ratio that is None."""
    lines = ["| compared | cells/s | against | times | repeats |", "| --- | ---: | ---: | ---: | ---: |"]
    for name, value in rows:
        if value is None:
            lines.append(f"| {name} | – | – | {without} | 0 |")
        else:
            lines.append(f"| {name} | {value.ours:,.0f} | {value.theirs:,.0f} | {value} | {value.repeats} |")
    return "\n".join(lines) + "\n"
