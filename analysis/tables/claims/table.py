"""The tables of all claims: reproduction.md for readers, reproduction.csv for programs."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd

from analysis.tables.claims import ledger
from analysis.tables.claims.judge import DATASETS, LEAST_REPEATS, OF_SHAPES, VERDICTS, Plates, judge
from harness.condition import FEWEST_FETCHES
from harness.data.dataset import Dataset

LABEL = "plate"
BOOTSTRAP = 6
"""The least number of repeats whose interval is a bootstrap interval; fewer have a range. See summary.interval."""
RULES = f"""\
*Reproduced* and *differs* are verdicts on what was measured: the value is within the claim's tolerance of the published
one, above or below, or it is not. The value is the median over at least {LEAST_REPEATS} repeats, each a process of its
own; in brackets is the range of fewer than six, or the 95 % bootstrap interval of six or more. A claim states loader,
output, minibatch, workers, block size and fetch factor, the state of the page cache and the disk: rows under other
conditions do not judge it. Rows with fewer than {FEWEST_FETCHES} fetches in their window are not used, and all that are
used are of one commit, the newest. An entropy is the mean over the minibatches of a recorded order of at least
{FEWEST_FETCHES} whole fetches, with its standard error (s.e.) in brackets; it is not judged if that is above half the
tolerance. A macro-F1 is not judged if no order reaches what a constant prediction does. *Not measured* names the
command that would measure it, or what is missing. *In shape* and *not in shape* are verdicts on a claim that something
is more or less than something else, by a quotient of rates whose whole interval is within bounds, or outside; other
systems and other links stand for the document's, as the claim says, and no number of it is reproduced. *Computed* is
the value of a formula, which stands in its own column and reproduces nothing. *Untestable here* says what a test would
take. The data set is {DATASETS[0]}, or {DATASETS[1]} in its place; of a shape also {OF_SHAPES[-1]}. A source is the
document's own words, or a file of its authors' repository. SLAF's own experiments have another form: their repeats run
in one process, in random order.
"""


def table(folder: Path, plates: Plates) -> pd.DataFrame:
    """One row for each claim: what it says, where that stands, and the fields of its verdict."""
    kept = ("id", "document", "kind", "says", "published", "unit", "tolerance", "within", "remark", "source_kind")
    rows = []
    for claim in ledger.read():
        source = claim.quote or f"{claim.source} at {claim.commit}"
        rows.append(
            {name: getattr(claim, name) for name in kept} | {"source": source} | vars(judge(claim, folder, plates))
        )
    return pd.DataFrame(rows).astype({"published": float, "tolerance": float, "within": float})


def markdown(frame: pd.DataFrame) -> str:
    """The number of claims with each verdict, the rules, and one markdown table for each document."""
    lines = [f"{len(frame)} claims: {_counts(frame['verdict'], VERDICTS)}.", ""]
    lines += [f"By kind: {_counts(frame['kind'], ledger.KINDS)}.", "", RULES]
    for document, claims in frame.groupby("document", sort=False):
        lines += [f"## {document}", "", "| claim | kind | published | measured | law | verdict | source |"]
        lines += ["| --- | --- | ---: | ---: | ---: | --- | --- |"]
        for row in claims.itertuples():
            says = f"{row.says}." + (f" {row.remark}." if row.remark else "")
            verdict = row.verdict + (f": {row.because}" if row.because else "")
            source = f"“{row.source}”" if row.source_kind == "document" else row.source
            published = f"{number(row.published)} {row.unit}" if np.isfinite(row.published) else "–"
            cells = (says, row.kind, published, measured(row), number(row.law), verdict, source)
            lines.append(f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |")
        lines.append("")
    return "\n".join(lines)


def _counts(values: pd.Series, names: Iterable[str]) -> str:
    return ", ".join(f"{(values == name).sum()} {name}" for name in names)


def measured(row: object) -> str:
    """The measured value of a row of the table with its range, interval or standard error, as text."""
    text = number(row.measured)
    if np.isfinite(row.low):
        name = "range" if row.repeats < BOOTSTRAP else "95 %"
        text += f" ({name} {number(row.low)} to {number(row.high)})"
    return text + (f" (s.e. {row.error:.2g})" if np.isfinite(row.error) else "")


def number(value: float) -> str:
    """A value of a claim as text: whole numbers from 100 on, else three significant digits; a dash for nan."""
    if np.isnan(value):
        return "–"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def write(folder: Path, sets: Iterable[Dataset]) -> list[Path]:
    """Writes reproduction.md and reproduction.csv into a machine's folder.

    sets: the data sets of the records that are at hand. Recorded orders of others cannot be judged.
    """
    plates = {dataset.fingerprint: dataset.labels(LABEL) for dataset in sets if LABEL in dataset.label_names}
    frame = table(folder, plates)
    text, numbers = folder / "reproduction.md", folder / "reproduction.csv"
    text.write_text(f"# What was claimed, and what this machine measured\n\n{markdown(frame)}")
    frame.to_csv(numbers, index=False, float_format="%.6g")
    return [text, numbers]
