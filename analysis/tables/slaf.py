"""Tables of SLAF's own experiments, repeated: its five phases, its three laws, and its mixture of scanners.

Medians over repeats with their range. *Published* is what SLAF's posts print, of a MacBook M1 Max and one plate of
Tahoe-100M, so ratios may be compared, and rates not.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from analysis import published
from analysis.diversity import distance
from analysis.tables import command
from analysis.tables.summary import of_one_code
from harness.records import jsonl, slaf
from harness.records.base import Record
from harness.records.slaf import PHASES, Mixture, Operation, Phase

PUBLISHED_READING_US = {10: 0.7152, 25: 0.4745, 50: 0.1223, 100: 0.0529, 200: 0.0314}
"""By batches in a chunk, microseconds a row: by its other columns the first post prints nanoseconds as microseconds."""
MIXED_CELLS_PER_S, OF_SEQUENTIAL, WITHIN, ACROSS = 22_972, 0.97, 0.880, 0.900
"""The authors' rate with 16 scanners, its ratio to the sequential one, and their two scores.

slaf-project/slaf, docs/blog/blazing-fast-dataloaders-2.md. The length of fragments follows from the distance that it
prints within a fragment, 1,643.5, which is a third of it.
"""


def of_folder(folder: Path, dataset: str) -> str:
    """The markdown tables of what a machine's folder holds of a data set; "" if it holds nothing."""
    parts = {
        "The five phases": phases(_of(folder / slaf.PHASES_FILE, Phase, dataset)),
        "The three laws": operations(_of(folder / slaf.OPERATIONS_FILE, Operation, dataset)),
        "The mixture of scanners": mixtures(_of(folder / slaf.MIXTURE_FILE, Mixture, dataset)),
    }
    return "\n".join(f"{title}:\n\n{table}" for title, table in parts.items() if table)


def _of[T: Record](path: Path, kind: type[T], dataset: str) -> list[T]:
    return of_one_code(record for record in jsonl.read(path, kind) if record.dataset == dataset)


def rates_of(records: Sequence[Phase]) -> dict[int, dict[int, float]]:
    """Cells/s by phase and repeat, of the latest record of each."""
    rates: dict[int, dict[int, float]] = {}
    for record in records:
        rates.setdefault(record.phase, {})[record.repeat] = record.cells / record.seconds
    return rates


def phases(records: Sequence[Phase]) -> str:
    """A row for each phase, with its ratio to the phase before; "" without records."""
    rates, theirs = rates_of(records), published.laws()
    slafs = theirs[theirs["law"] == "ladder"].set_index("size")["cells_per_s"]
    lines = ["| phase | cells/s | over the one before | published | over the one before, published |"]
    lines += ["| --- | ---: | ---: | ---: | ---: |"]
    for phase, of_phase in sorted(rates.items()):
        before = rates.get(phase - 1, {})
        over = [rate / before[repeat] for repeat, rate in of_phase.items() if repeat in before]
        ratio = f"{slafs[phase] / slafs[phase - 1]:.2f}" if phase else "–"
        cells = (
            f"{phase}: {PHASES[phase]}",
            _range(list(of_phase.values())),
            _range(over),
            f"{slafs[phase]:,.0f}",
            ratio,
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n" if rates else ""


def operations(records: Sequence[Operation]) -> str:
    """A row for each operation, method and size, with its cost over that of the smallest size; "" without records."""
    costs = {(record.operation, record.method, record.size): record.us_per_unit for record in records}
    theirs = published.laws().set_index(["law", "size"])["us_per_cell"].to_dict()
    theirs |= {("reading", size): us for size, us in PUBLISHED_READING_US.items()}
    lines = [
        "| operation | at once | us a cell, or row | over the smallest | published us | over the smallest, published |"
    ]
    lines += ["| --- | ---: | ---: | ---: | ---: | ---: |"]
    for operation, method in sorted({key[:2] for key in costs}):
        sizes = sorted(size for *of, size in costs if of == [operation, method])
        for size in sizes:
            us, least = costs[operation, method, size], costs[operation, method, sizes[0]]
            over = [a / b for a, b in zip(us, least, strict=False)]
            known, first = theirs.get((operation, size)), theirs.get((operation, sizes[0]))
            cells = (
                f"{operation}, {method}", f"{size:,}", _range(us), _range(over),
                f"{known:g}" if known else "–", f"{known / first:.2f}" if known and first else "–",
            )  # fmt: skip
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n" if costs else ""


def scores_of(records: Sequence[Mixture], fragment_cells: int, n_scanners: int | None) -> list[dict[str, float]]:
    """For each repeat that has this setting and the sequential order of the same store, shares of 1:

    "throughput" (over that of the sequential order), "within" and "across" (the authors' scores), and for each label
    the entropy over that of cells drawn at random.
    """
    latest = {(m.fragment_cells, m.n_scanners, m.repeat): m for m in records}
    scores = []
    for (cells, scanners, repeat), m in sorted(latest.items(), key=lambda item: item[0][2]):
        base = latest.get((cells, None, repeat))
        if (cells, scanners) != (fragment_cells, n_scanners) or base is None:
            continue
        scores.append(
            {
                "throughput": m.cells / m.seconds / (base.cells / base.seconds),
                "within": distance.score(m.within_cells, base.within_cells, m.cells),
                "across": distance.score(m.across_cells, base.across_cells, m.cells),
                **{label: bits / m.random_bits[label] for label, bits in m.bits.items() if m.random_bits[label] > 0},
            }
        )
    return scores


def mixtures(records: Sequence[Mixture]) -> str:
    """A row for each fragment size and number of scanners; "" without records."""
    settings = sorted({(m.fragment_cells, m.n_scanners or 0) for m in records})
    labels = list(dict.fromkeys(label for m in records for label in m.bits))
    head = ["cells in a fragment", "scanners", "cells/s", "of sequential", "authors' score, within", "across"]
    head += [f"{label}, of random" for label in labels]
    lines = [head, ["---:"] * len(head)]
    for cells, scanners in settings:
        runs = [m for m in records if (m.fragment_cells, m.n_scanners or 0) == (cells, scanners)]
        scores = scores_of(records, cells, scanners or None)
        shares = [
            _range([s[name] for s in scores if name in s]) for name in ("throughput", "within", "across", *labels)
        ]
        rates = _range([m.cells / m.seconds for m in runs])
        lines.append([f"{cells:,}", f"{scanners}" if scanners else "sequential", rates, *shares])
    known = (f"{share:.2f}" for share in (OF_SEQUENTIAL, WITHIN, ACROSS))
    lines.append(["5,000", "16, published", f"{MIXED_CELLS_PER_S:,}", *known, *["–"] * len(labels)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n" if records else ""


def _range(values: Sequence[float]) -> str:
    """The median, and the range if there are several values; a dash without any."""
    if not len(values):
        return "–"
    text = number(float(np.median(values)))
    return text + (f" ({number(min(values))} to {number(max(values))})" if len(values) > 1 else "")


def number(value: float) -> str:
    return (
        f"{value:,.0f}"
        if value >= 100
        else f"{value:.1f}"
        if value >= 10
        else f"{value:.3f}"
        if value < 0.1
        else f"{value:.2f}"
    )


if __name__ == "__main__":
    command.run(__doc__, of_folder)
