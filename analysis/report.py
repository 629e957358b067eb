"""An HTML report of a results folder: its tables and figures, the published claims, the machine, and warnings.

The page is self-contained: it needs neither a network nor other files.
"""

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from analysis.figures.kinds import CAPTIONS
from analysis.tables import text
from analysis.tables.claims.table import measured, number
from harness.errors import UserError
from harness.grids import datasets, expand, grid_names
from harness.records import jsonl
from harness.records.measurement import Measurement
from harness.records.validate import KINDS

FILE = "report.html"
HEADLINE = ("loaders", "quick")  # the grids that come first
TABLE = "-table.csv"


class Picture(NamedTuple):
    """A figure. name: its file name without the suffix; png, csv: the contents of the files in base64."""

    name: str
    caption: str
    png: str
    csv: str


class Section(NamedTuple):
    """A section of the page: one grid over one data set, the training, or the costs of a cell.

    command: the command that measures it. head, rows: the table as text. notes: its footnotes.
    """

    id: str
    title: str
    command: str
    head: list[str]
    rows: list[list[str]]
    notes: list[str]
    pictures: list[Picture]


def write(folder: Path) -> Path:
    """Writes report.html into a machine's folder, from the files that other commands wrote there. Returns its path.

    Raises UserError if the folder holds no table.
    """
    sections = [*_grids(folder), *_fed(folder), *_training(folder), *_laws(folder)]
    if not sections:
        raise UserError(f"{folder / 'figures'} holds no tables: make figures RESULTS={folder}")
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    page = environment.get_template("report.html.j2").render(
        machine=folder.name, sections=sections, claims=_claims(folder), facts=_facts(folder), doubts=_doubts(folder)
    )
    path = folder / FILE
    partial = path.with_suffix(".partial")
    partial.write_text(page)
    partial.rename(path)
    return path


def _grids(folder: Path) -> list[Section]:
    """The sections of all grids that have tables, those of HEADLINE first."""
    tables: dict[str, list[str]] = {}
    for path in sorted((folder / "figures").glob(f"*{TABLE}")):
        stem = path.name.removesuffix(TABLE)
        if matching := [name for name in grid_names() if stem.endswith(f"-{name}")]:
            tables.setdefault(max(matching, key=len), []).append(stem)
    sections = []
    for name in sorted(tables, key=lambda name: HEADLINE.index(name) if name in HEADLINE else len(HEADLINE)):
        for stem in tables[name]:
            dataset = stem.removesuffix(f"-{name}")
            frame = text.read_csv(folder / "figures" / f"{stem}{TABLE}")
            lines = text.lines(frame)
            pictures = _pictures(folder, stem)
            if stem == tables[name][-1]:  # a figure of scaling shows all data sets at once
                pictures += _pictures(folder, name, "scaling")
            sections.append(
                Section(
                    id=stem,
                    title=f"{expand(name, dataset).title} ({dataset})",
                    command=f"make bench GRID={name}" + ("" if datasets(name) else f" DATASET={dataset}"),
                    head=list(lines[0]),
                    rows=[list(line.values()) for line in lines],
                    notes=text.footnotes(frame),
                    pictures=pictures,
                )
            )
    return sections


def _fed(folder: Path) -> list[Section]:
    """One section for each data set with emulated accelerators."""
    sections = []
    for path in sorted((folder / "figures").glob("*-accelerators-accelerators.csv")):
        stem = path.name.removesuffix("-accelerators.csv")
        dataset = stem.removesuffix("-accelerators")
        frame = pd.read_csv(path)[["loader", "setting", "accelerator_ms", "consumer", "accelerators", "low", "high"]]
        sections.append(
            Section(
                id=stem,
                title=f"{expand('accelerators', dataset).title} ({dataset})",
                command=f"make bench GRID=accelerators DATASET={dataset}",
                head=list(frame.columns),
                rows=[
                    ["–" if pd.isna(value) else f"{value}" for value in row] for row in frame.itertuples(index=False)
                ],
                notes=[],
                pictures=_pictures(folder, stem),
            )
        )
    return sections


def _training(folder: Path) -> list[Section]:
    """One section for each data set with a table of training."""
    sections = []
    for path in sorted((folder / "figures").glob(f"*-training{TABLE}")):
        stem = path.name.removesuffix(TABLE)
        dataset = stem.removesuffix("-training")
        frame = pd.read_csv(path)
        columns = {
            "order": frame["arm"],
            "head": frame["head"],
            "test": frame["test"],
            "macro-F1": [f"{value:.3f}" for value in frame["macro_f1"]],
            "least": [f"{value:.3f}" for value in frame["least"]],
            "most": [f"{value:.3f}" for value in frame["most"]],
            "accuracy": [f"{value:.3f}" for value in frame["accuracy"]],
            "jump, nats": [f"{value:+.2f}" for value in frame["jump_nats"]],
            "seeds": [str(value) for value in frame["seeds"]],
        }
        sections.append(
            Section(
                id=stem,
                title=f"The same models trained on each order of the cells ({dataset})",
                command=f"make train DATASET={dataset}",
                head=list(columns),
                rows=[list(row) for row in zip(*columns.values(), strict=True)],
                notes=[],
                pictures=_pictures(folder, stem),
            )
        )
    return sections


def _laws(folder: Path) -> list[Section]:
    """One section for each data set with measured costs of a cell."""
    sections = []
    for path in sorted((folder / "figures").glob("*-laws.csv")):
        dataset = path.name.removesuffix("-laws.csv")
        frame = pd.read_csv(path)
        rows = [
            [row.law, row.method, f"{row.size:,}", *(f"{cost:,.1f}" for cost in (row.us_per_cell, row.least, row.most))]
            for row in frame.itertuples()
        ]
        sections.append(
            Section(
                id=path.stem,
                title=f"Cost of a cell by the number of cells handled at once ({dataset})",
                command=f"python -m harness laws --dataset {dataset}",
                head=["law", "method", "cells at once", "us per cell", "least", "most"],
                rows=rows,
                notes=[],
                pictures=_pictures(folder, path.stem, "laws"),
            )
        )
    return sections


def _pictures(folder: Path, stem: str, caption: str | None = None) -> list[Picture]:
    """The figures that have both a PNG and a CSV file.

    caption: a key of CAPTIONS; only the figure called `stem` is included, with this caption. None: all figures are
    included whose name is `stem`, a dash and a key of CAPTIONS.
    """
    kinds = {stem: caption} if caption else {f"{stem}-{kind}": kind for kind in CAPTIONS}
    pictures = []
    for name, kind in kinds.items():
        png, numbers = (folder / "figures" / f"{name}{suffix}" for suffix in (".png", ".csv"))
        if png.exists() and numbers.exists():
            pictures.append(Picture(name, CAPTIONS[kind], _base64(png), _base64(numbers)))
    return pictures


def undrawn(folder: Path) -> int:
    """The number of figures in the folder that have a CSV file of their numbers, but no PNG file."""
    numbers = (path for path in (folder / "figures").glob("*.csv") if path.stem.rsplit("-", 1)[-1] in CAPTIONS)
    return sum(not path.with_suffix(".png").exists() for path in numbers)


def _base64(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def _claims(folder: Path) -> list[dict[str, Any]]:
    """The rows of reproduction.csv, with numbers as text; [] if the file does not exist."""
    path = folder / "reproduction.csv"
    if not path.exists():
        return []
    frame = pd.read_csv(path)
    texts = frame[["because", "remark", "unit"]].fillna("")
    numbers = {name: [number(value) for value in frame[name]] for name in ("published", "law")}
    values = [measured(row) for row in frame.itertuples()]
    return frame.assign(**texts, **numbers, measured=values).to_dict("records")


def _records(folder: Path) -> Sequence[Any]:
    """All records in the folder, of every kind."""
    paths = sorted(folder.glob("*.jsonl"))
    return [record for path in paths for record in jsonl.read(path, KINDS.get(path.name, Measurement))]


def _facts(folder: Path) -> list[tuple[str, str]]:
    """(name, text) of the facts about the machine, the commits and the versions, from the records' provenance."""
    provenances = [record.provenance for record in _records(folder)]
    if not provenances:
        return []
    last = max(provenances, key=lambda facts: facts["utc"])
    packages = {name: version for facts in provenances for name, version in facts["packages"].items()}
    commits = sorted({facts["git_commit"][:7] for facts in provenances if facts["git_commit"]})
    return [
        ("processor", f"{last['cpu']}, {last['cores']} cores"),
        ("memory", f"{last['ram_bytes'] / 2**30:.0f} GB"),
        ("system", f"Linux {last['kernel']}"),
        ("Python", last["python"]),
        (
            "measured",
            f"{min(facts['utc'] for facts in provenances)[:10]} to {last['utc'][:10]}, {len(provenances)} records",
        ),
        ("commits", ", ".join(commits)),
        ("versions", ", ".join(f"{name} {version}" for name, version in sorted(packages.items()))),
    ]


def _doubts(folder: Path) -> list[tuple[str, list[str]]]:
    """(doubt, the conditions it applies to), the most frequent first."""
    conditions: dict[str, list[str]] = {}
    for path in sorted((folder / "figures").glob(f"*{TABLE}")):
        if path.name.endswith((f"-training{TABLE}", f"-steps{TABLE}")):  # their rows are no conditions
            continue
        for row in text.read_csv(path).to_dict("records"):
            for doubt in row["doubts"]:
                conditions.setdefault(doubt, []).append(f"{path.name.removesuffix(TABLE)}: {row['condition']}")
    return sorted(conditions.items(), key=lambda item: -len(item[1]))
