"""Finds well-formed records that cannot be true: lines that were edited, or written by a faulty harness."""

import math
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import loaders
from harness.condition import LEAST_UTILISATION
from harness.errors import UserError
from harness.records import ceiling, conversion, cost, history, jsonl, kills, slaf, steps, training
from harness.records.ceiling import Ceiling
from harness.records.conversion import Conversion
from harness.records.cost import Cost
from harness.records.kills import Kills
from harness.records.measurement import COLD_AT_MOST, WARM_AT_LEAST, Measurement
from harness.records.slaf import Mixture, Operation, Phase
from harness.records.steps import Steps
from harness.records.training import Run

CPU_SLACK = 1.02  # tolerated factor: CPU time and wall-clock time are not read at the same instant
CPU_SLACK_S = 0.1  # for each process, since they are read one after another, and go on meanwhile
ABOVE = 1.5  # tolerated factor above a ceiling, which was not measured at the same time as the row
DISK_SLACK = 1.5  # tolerated factor above the limit of a disk, which counts requests before they are served
CLOCKS_APART = timedelta(days=1)  # the clocks of two machines may differ
KINDS = {
    conversion.FILE: Conversion,
    ceiling.FILE: Ceiling,
    training.FILE: Run,
    cost.FILE: Cost,
    kills.FILE: Kills,
    slaf.PHASES_FILE: Phase,
    slaf.OPERATIONS_FILE: Operation,
    slaf.MIXTURE_FILE: Mixture,
    steps.FILE: Steps,
}
"""The kind of the records in each file, by file name. All other files hold measurements."""


def problems(folder: Path) -> Iterator[tuple[Path, int, str]]:
    """(file, line number from 1, reason) for every reason why a record below the folder cannot be true.

    Lines that were removed are reported with line number 0.

    Raises UserError for a line that is not a record, or if there is no file of records.
    """
    paths = sorted(folder.rglob("*.jsonl"))
    if not paths:
        raise UserError(f"{folder} holds no results (*.jsonl).")
    yield from ((path, 0, reason) for path, reason in history.removals(folder))
    for path in paths:
        kind = KINDS.get(path.name, Measurement)
        ceilings = ceiling.read(path.parent)
        for line, record in enumerate(jsonl.read(path, kind), start=1):
            match record:
                case Conversion():
                    reasons = of_conversion(record)
                case Ceiling():
                    reasons = of_ceiling(record)
                case Run():
                    reasons = of_run(record)
                case Cost():
                    is_positive = record.us_per_cell and min(record.us_per_cell) > 0
                    reasons = [] if is_positive else ["it has no cost, or one that is not above 0"]
                case Kills():
                    reasons = of_kills(record)
                case Phase() | Operation() | Mixture():
                    reasons = of_slaf(record)
                case Steps():
                    reasons = steps.impossible(record)
                case _:
                    reasons = [*of_measurement(record), *under(record, ceilings)]
            yield from ((path, line, reason) for reason in [*reasons, *_of_provenance(record.provenance)])


def of_measurement(m: Measurement) -> list[str]:
    """The reasons why one measurement cannot be true."""
    if m.status != "ok":
        of_window = ("rows", "seconds", "windows", "fetches")
        reasons = [f"it is {m.status}, and yet has {name}" for name in of_window if getattr(m, name)]
        return reasons + ([] if m.reason else [f"it is {m.status}, and gives no reason"])
    reasons = []
    if m.seconds < m.timing.measure_s and m.condition.cache != "first":
        reasons.append(f"its window of {m.seconds:g} s is shorter than the {m.timing.measure_s:g} s asked for")
    limits = m.provenance.get("limits") or {}
    is_bucket = m.condition.ttfb_ms is not None  # it serves from memory
    is_served = m.received_bytes or (m.received_bytes == 0 and loaders.keeps_copies(m.condition.loader))
    if is_bucket and (limits.get("bucket", {}).get("ttfb_ms") != m.condition.ttfb_ms or not is_served):
        reasons.append("it was to read from a bucket, and nothing says that it did")
    if m.condition.cache != "warm" and not is_bucket and (m.resident_before or 0) > COLD_AT_MOST:
        reasons.append(f"{m.resident_before:.0%} of the store was in memory when a {m.condition.cache} condition began")
    if m.condition.cache == "bounded" and not (m.provenance.get("bound") or limits.get("memory_bytes")):
        reasons.append("it was to be bounded, and nothing says by what")
    if m.condition.disk and limits.get("disk") != m.condition.disk:
        reasons.append(f"its disk was to be {m.condition.disk}, and nothing says that it was")
    if (
        m.condition.disk
        and m.disk_read_bytes
        and m.disk_read_bytes / m.seconds > DISK_SLACK * (limits.get("bytes_per_s") or math.inf)
    ):
        reasons.append(f"it read {m.disk_read_bytes / m.seconds / 1e6:,.0f} MB/s from its {m.condition.disk}")
    if m.condition.cache == "warm" and m.edges is not None and (m.resident_before or 1) < WARM_AT_LEAST:
        reasons.append(f"only {m.resident_before:.0%} of the store was in memory when a warm condition began")
    reasons += of_probes(m)
    if m.edges is not None and not _ascends([[0, 0], *m.edges, [m.seconds, m.rows]]):
        reasons.append("its edges are not in order")
    cores = m.condition.cores or m.provenance.get("cores")
    slack_s = CPU_SLACK_S * m.condition.processes * (1 + m.condition.workers)
    if m.cpu_s and cores and m.cpu_s > cores * m.seconds * CPU_SLACK + slack_s:
        reasons.append(f"{m.cpu_s:.1f} s of CPU time in {m.seconds:.1f} s are more than {cores} core(s) have")
    if m.windows is not None and (len(m.windows) != int(m.seconds) or sum(m.windows) > m.rows):
        reasons.append("the rows of its seconds are not those of its window")
    if (m.tokens is not None) != (m.condition.output == "tokens" and m.condition.accelerator_ms is None):
        reasons.append(f"its output is {m.condition.output}, and the number of its tokens {m.tokens}")
    if m.tokens is not None and m.tokens < m.rows:
        reasons.append(f"{m.rows:,} cells have {m.tokens:,} tokens, less than one each")
    if m.waiting_s is not None and not 0 <= m.waiting_s <= m.seconds:
        reasons.append(f"it waited {m.waiting_s:g} s of {m.seconds:g}")
    for name in ("resident_before", "resident_after"):
        share = getattr(m, name)
        if share is not None and not 0 <= share <= 1:
            reasons.append(f"{name} is {share:g}, which is no share")
    for name in ("import_s", "open_s", "first_batch_s", "cpu_s", "disk_read_bytes", "disk_reads", "peak_rss_bytes"):
        if (getattr(m, name) or 0) < 0:
            reasons.append(f"{name} is below 0")
    return reasons


def of_probes(m: Measurement) -> list[str]:
    """The reasons why the accelerators of a successful measurement, and the probes that found them, cannot be true."""
    step_ms = m.condition.accelerator_ms
    if any((value is None) != (step_ms is None) for value in (m.accelerators, m.probes)):
        return ["its condition has accelerators and it names none, or it names some and its condition has none"]
    if step_ms is None:
        return []
    fed = [n for n, utilisation, _ in m.probes if utilisation >= LEAST_UTILISATION]
    n = max(1, m.accelerators)
    reasons = []
    if m.accelerators != max(fed, default=0) or n not in [number for number, _, _ in m.probes]:
        reasons.append(f"its probes do not say that {m.accelerators} accelerators were fed")
    if not all(n >= 1 and 0 < utilisation <= 1 and seconds > 0 for n, utilisation, seconds in m.probes):
        reasons.append("a probe has no accelerator, no time, or a utilisation that is no share")
    step_rows, step_s = n * m.condition.batch_size, step_ms / 1e3
    if m.rows > (m.seconds / step_s + 1) * step_rows + m.condition.batch_size:
        reasons.append(f"{m.rows:,} rows are more than {n} accelerators take in {m.seconds:g} s")
    return reasons


def _ascends(points: Sequence[Sequence[float]]) -> bool:
    """Whether both columns ascend, or stay."""
    return all(a[0] <= b[0] and a[1] <= b[1] for a, b in pairwise(points))


def under(m: Measurement, ceilings: Sequence[Ceiling]) -> list[str]:
    """A list with the reason if a measurement is faster than its machine can read, decode or copy; else []."""
    limits = ceiling.ceiling_of(m, ceilings) if m.status == "ok" else None
    if limits is None:
        return []
    cells_per_s, binds = ceiling.roof(m, limits)
    if m.cells_per_s <= ABOVE * cells_per_s:
        return []
    return [f"{m.cells_per_s:,.0f} cells/s are more than the {cells_per_s:,.0f} that the ceiling ({binds}) allows"]


def of_ceiling(c: Ceiling) -> list[str]:
    """The reasons why one record of a store's ceilings cannot be true."""
    rates = [rate for modes in c.storage.values() for rate in modes.values()]
    rates += [c.decode_cells_per_s, *c.copy_cells_per_s.values()]
    reasons = [] if any(rates) else ["it has no rate"]
    return reasons + (["a rate of it is not above 0"] if any(rate is not None and rate <= 0 for rate in rates) else [])


def of_conversion(c: Conversion) -> list[str]:
    """The reasons why one record of a conversion cannot be true."""
    if c.status != "ok":
        return [] if c.reason else [f"it is {c.status}, and gives no reason"]
    if not (c.seconds and c.seconds > 0 and c.provenance.get("store_bytes")):
        return ["it is ok, yet without seconds or bytes"]
    return []


def of_run(run: Run) -> list[str]:
    """The reasons why one training run cannot be true."""
    reasons = [] if run.minibatches > 0 and run.seconds > 0 else ["it has no minibatches or took no time"]
    scores = [score for tests in run.scores.values() for kinds in tests.values() for score in kinds.values()]
    if not scores or not all(0 <= score <= 1 for score in scores):
        reasons.append("it has no scores, or one that is not between 0 and 1")
    return reasons


def of_kills(run: Kills) -> list[str]:
    """The reasons why one run with kills of producers cannot be true."""
    times = [0.0, *run.arrivals_s]
    reasons = [] if run.producers > 0 and len(run.arrivals_s) > 1 else ["it has no producers, or no two fetches"]
    if len(run.cells) != len(run.arrivals_s) or not all(cells > 0 for cells in run.cells):
        reasons.append("not every fetch has cells")
    if any(later < earlier for earlier, later in pairwise(times)):
        reasons.append("its fetches did not arrive in order")
    if not all(0 <= kill <= times[-1] for kill in run.kills_s):
        reasons.append("a producer was killed while nothing was read")
    return reasons


def of_slaf(record: Phase | Operation | Mixture) -> list[str]:
    """The reasons why one record of SLAF's own experiments cannot be true."""
    match record:
        case Operation():
            return [] if record.us_per_unit and min(record.us_per_unit) > 0 else ["it has no cost, or one not above 0"]
        case Phase():
            reasons = [] if 0 <= record.phase < len(slaf.PHASES) else ["it is of no phase"]
        case Mixture():
            distances = (record.within_cells, record.across_cells)
            reasons = (
                [] if all(0 <= d < record.cells for d in distances) else ["its distances are not those of its cells"]
            )
            if not all(0 <= bits <= math.log2(record.batch_size) for bits in record.bits.values()):
                reasons.append("an entropy of it is more than its minibatches can have")
    return reasons + ([] if record.cells > 0 and record.seconds > 0 else ["it has no cells or took no time"])


def _of_provenance(facts: dict) -> list[str]:
    required = ("utc", "machine", "dataset_fingerprint")
    reasons = [f"its provenance has no {name}" for name in required if not facts.get(name)]
    if not reasons:
        recorded = datetime.fromisoformat(facts["utc"])
        if recorded > datetime.now(UTC) + CLOCKS_APART:
            reasons.append(f"it was made in the future, {facts['utc']}")
    return reasons
