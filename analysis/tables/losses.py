"""Table of the conditions in which another loader is faster than ours, and of how many were compared.

python -m analysis.tables.losses results/MACHINE

Of all grids measured by the second edition of the rules; of `frontier` only if all its settings were tried.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pandas as pd

import loaders
from analysis.tables import command, compare, frontier
from analysis.tables.compare import Measured, Ratio
from analysis.tables.summary import chance_of, measured_on
from harness.condition import Condition
from harness.records import jsonl
from harness.records.measurement import RULES_EDITION, Measurement
from harness.records.validate import KINDS
from loaders.protocol import UNCONVERTED

EQUAL = "at equal settings, from the same store"
SAME_STORE = "best against best, from the same converted store"
UNCONVERTED_OURS = "best against best, ours from h5ad files as they are"
OUTCOMES = ("lost", "won", "no difference")


class Comparison(NamedTuple):
    """One loader against ours.

    kind: EQUAL, SAME_STORE or UNCONVERTED_OURS. diverse: whether both settings are known to be within `frontier.WITHIN`
    bits of random, with buffers of at most `frontier.BUFFER_BYTES`. ratio: ours over theirs.
    """

    kind: str
    grid: str
    ours: Condition
    theirs: Condition
    diverse: bool
    ratio: Ratio

    @property
    def outcome(self) -> str:
        if not self.ratio.differs:
            return "no difference"
        return "won" if self.ratio.times > 1 else "lost"


def comparisons(folder: Path) -> list[Comparison]:
    """All comparisons that the records of a machine's folder allow. Rows with too few fetches are in none."""
    compared = []
    for path in sorted(folder.glob("*.jsonl")):
        if path.name in KINDS:
            continue
        rows = [
            m
            for m in jsonl.read(path)
            if m.provenance.get("rules_edition") == RULES_EDITION and m.condition.accelerator_ms is None
        ]
        for dataset in dict.fromkeys(m.condition.dataset for m in rows):
            of_set = measured_on(dataset, rows, pairs=True)
            if path.stem == frontier.GRID and not frontier.is_finished(of_set):
                continue
            diverse = _diverse(folder / "figures" / f"{dataset}-{path.stem}")
            compared += _of_grid(path.stem, of_set, diverse)
    return compared


def _diverse(stem: Path) -> set[str]:
    """The keys of the conditions within `frontier.WITHIN` bits of random for every label, in buffers small enough.

    stem: the path of the grid's tables without their ends, "diversity.csv" and "table.csv".
    """
    mixed, table = (stem.with_name(f"{stem.name}-{end}.csv") for end in ("diversity", "table"))
    if not mixed.exists():
        return set()
    frame = pd.read_csv(mixed, dtype={"key": str})
    short = (frame["random_bits"] - frame["entropy_bits"]).groupby(frame["key"]).max()
    rows = pd.read_csv(table, dtype={"key": str}).set_index("key")
    small = frontier.buffer_bytes(rows) <= frontier.BUFFER_BYTES
    return set(short.index[short <= frontier.WITHIN]) & set(small.index[small])


def _of_grid(grid: str, measurements: Sequence[Measurement], diverse: set[str]) -> Iterator[Comparison]:
    """The comparisons of one grid on one data set."""
    rows = compare.of_one_table(measurements)
    measured = compare.without_few(compare.by_condition(rows))
    # The rate of ours over files that it has downloaded is not that of reading objects, as the others' is.
    measured = {c: m for c, m in measured.items() if not (compare.is_ours(c.loader) and loaders.keeps_copies(c.loader))}
    spread = compare.spread(chance_of(rows))
    for kind, ours, theirs in [*_equal(measured), *_best(measured, diverse)]:
        known = {ours.key, theirs.key} <= diverse
        if ratio := compare.ratio(measured, ours, theirs, spread):
            yield Comparison(kind, grid, ours, theirs, known, ratio)


def _equal(measured: Measured) -> Iterator[tuple[str, Condition, Condition]]:
    """(EQUAL, ours, theirs) for each of our settings and each loader that has the same; of several the fastest."""
    settings: dict[tuple[object, ...], dict[str, list[Condition]]] = {}
    for c in measured:
        if compare.blocks(c) is not None:
            key = (compare.surroundings(c), loaders.get(c.loader).store, compare.blocks(c))
            settings.setdefault(key, {}).setdefault(c.loader, []).append(c)
    for by_loader in settings.values():
        best = {loader: compare.fastest(measured, conditions) for loader, conditions in by_loader.items()}
        for ours in filter(compare.is_ours, best):
            yield from ((EQUAL, best[ours], best[theirs]) for theirs in best if not compare.is_ours(theirs))


def _best(measured: Measured, diverse: set[str]) -> Iterator[tuple[str, Condition, Condition]]:
    """(kind, ours, theirs): the fastest settings of two loaders, with any number of workers and processes.

    Settings in random order are those as diverse as random in a small buffer, if both loaders have such. Loaders that
    hold all cells in memory are left out.
    """
    groups: dict[Condition, dict[str, list[Condition]]] = {}
    for c in measured:
        if not loaders.holds_all(c.loader):
            key = replace(compare.surroundings(c), workers=0, processes=1)
            groups.setdefault(key, {}).setdefault(c.loader, []).append(c)
    for by_loader in groups.values():
        for ours in filter(compare.is_ours, by_loader):
            store = loaders.get(ours).store
            for theirs in by_loader:
                same = loaders.get(theirs).store == store
                if compare.is_ours(theirs) or not (same or store == UNCONVERTED):
                    continue
                sides = [by_loader[ours], by_loader[theirs]]
                mixed = [[c for c in side if c.key in diverse] for side in sides]
                best = [compare.fastest(measured, side) for side in (mixed if all(mixed) else sides)]
                yield (UNCONVERTED_OURS if store == UNCONVERTED else SAME_STORE, *best)


def markdown(compared: Sequence[Comparison]) -> str:
    """How many comparisons had which outcome, and a table of those lost, the largest factor first."""
    if not compared:
        return "No measurement by the second edition of the rules is here yet.\n"
    counts = Counter((c.kind, c.outcome) for c in compared)
    lines = ["| compared | comparisons | lost | won | no difference |", "| --- | ---: | ---: | ---: | ---: |"]
    for kind in (EQUAL, SAME_STORE, UNCONVERTED_OURS):
        outcomes = [counts[kind, outcome] for outcome in OUTCOMES]
        lines.append(f"| {kind} | {sum(outcomes)} | {' | '.join(map(str, outcomes))} |")
    lost = sorted((c for c in compared if c.outcome == "lost"), key=lambda c: (c.ratio.times, c.grid, str(c.theirs)))
    if not lost:
        return "\n".join(lines) + "\n"
    within = f"within {frontier.WITHIN:g} bits"
    lines += ["", f"| times faster | faster | ours | compared | grid and data set | under | {within} |"]
    lines.append("| ---: | --- | --- | --- | --- | --- | --- |")
    for c in lost:
        faster, ours = (
            f"`{side.loader}` {compare.setting(side)}: {rate:,.0f}"
            for side, rate in ((c.theirs, c.ratio.theirs), (c.ours, c.ratio.ours))
        )
        where = f"{c.grid}, {c.ours.dataset} | {_under(c.ours)} | {'both' if c.diverse else '–'}"
        lines.append(f"| {_times_faster(c.ratio)} | {faster} | {ours} | {c.kind} | {where} |")
    return "\n".join(lines) + "\n"


def _times_faster(ratio: Ratio) -> str:
    """The inverse of the ratio, with its range."""
    within = "" if pd.isna(ratio.low) else f" ({compare.number(1 / ratio.high)} to {compare.number(1 / ratio.low)})"
    return compare.number(1 / ratio.times) + within


def _under(condition: Condition) -> str:
    """Regime, disk, order, output and minibatch as text."""
    parts = [condition.cache, *filter(None, [condition.where]), condition.order, condition.form]
    return ", ".join([*parts, f"batch {condition.batch_size}"])


if __name__ == "__main__":
    command.run(__doc__, lambda folder: markdown(comparisons(folder)), of_a_dataset=False)
