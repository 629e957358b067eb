"""One page for a results folder: every table and figure that lies in it, the claims, the machine, and what is
doubtful. It needs no network and no file beside it."""

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from analysis.tables import text
from analysis.tables.claims import number
from harness.errors import UserError
from harness.grids import datasets, expand, grid_names
from harness.records import jsonl
from harness.records.measurement import Measurement
from harness.records.validate import KINDS

FILE = "report.html"
HEADLINE = ("loaders", "quick")  # the grids whose table comes first, if there is one
TABLE = "-table.csv"
CAPTIONS = {
    "throughput": "Throughput over block size and fetch factor; the colour is on a log scale, one for all panels.",
    "lines": "The same as lines over block size, one a fetch factor; hollow what was published.",
    "entropy": "Entropy of the first label in a minibatch, in the recorded order of the very same conditions.",
    "bounds": "Entropy against block size: lines are what is expected, exactly and (dotted) to first order, dots what "
    "was measured, squares what was published, grey the poster's bounds and the level of cells drawn at random.",
    "loaders": "Throughput of every condition, on a log scale.",
    "roofline": "Throughput against the bytes taken from the disk for each cell, under what disk, decoding and copying "
    "allow with no loader at all.",
    "speedups": "Times the throughput of the library's own random access; hollow what was published.",
    "mixing": "Entropy of each label in a minibatch against throughput: up and to the right is better.",
    "epoch": "What an epoch of Tahoe-100M would take at the throughput measured; hollow what was published of it.",
    "stores": "What each store costs to make and to keep, and what its fastest loader reads from it.",
    "laws": "Microseconds a cell by how many are handled at once, medians and ranges; squares: published by SLAF's.",
    "scaling": "Throughput with its interval over repeats, processor time a cell, and time to the first batch.",
    "f1": "Macro-F1 after one epoch: median and range over seeds, on both test sets; hollow what was published.",
    "loss": "Loss of the first seed, a running median; dashed where the stream goes from one plate to the next.",
}


class Picture(NamedTuple):
    """caption: text; png and csv: the files' bytes in base64; name: theirs, without the suffix."""

    name: str
    caption: str
    png: str
    csv: str


class Section(NamedTuple):
    """One grid over one data set, or the training: head and rows are a table's text, notes its footnotes."""

    id: str
    title: str
    command: str
    head: list[str]
    rows: list[list[str]]
    notes: list[str]
    pictures: list[Picture]


def write(folder: Path) -> Path:
    """Writes report.html into a machine's folder, of what `make bench`, `figures` and `train` have left there.

    UserError where they have left no table.
    """
    sections = [*_grids(folder), *_training(folder), *_laws(folder)]
    if not sections:
        raise UserError(f"{folder / 'figures'} holds no tables: make figures RESULTS={folder}")
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    page = environment.get_template("report.html.j2").render(
        machine=folder.name, sections=sections, claims=_claims(folder), facts=_facts(folder), doubts=_doubts(folder)
    )
    path = folder / FILE
    aside = path.with_suffix(".partial")
    aside.write_text(page)
    aside.rename(path)
    return path


def _grids(folder: Path) -> list[Section]:
    """Of each grid that has tables, those of the headline first."""
    tables: dict[str, list[str]] = {}
    for path in sorted((folder / "figures").glob(f"*{TABLE}")):
        stem = path.name.removesuffix(TABLE)
        if named := [name for name in grid_names() if stem.endswith(f"-{name}")]:
            tables.setdefault(max(named, key=len), []).append(stem)
    found = []
    for name in sorted(tables, key=lambda name: HEADLINE.index(name) if name in HEADLINE else len(HEADLINE)):
        for stem in tables[name]:
            dataset = stem.removesuffix(f"-{name}")
            frame = text.read_csv(folder / "figures" / f"{stem}{TABLE}")
            lines = text.lines(frame)
            pictures = _pictures(folder, stem)
            if stem == tables[name][-1]:  # a figure of scaling is one of all its data sets
                pictures += _pictures(folder, name, "scaling")
            found.append(
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
    return found


def _training(folder: Path) -> list[Section]:
    found = []
    for path in sorted((folder / "figures").glob(f"*-training{TABLE}")):
        stem = path.name.removesuffix(TABLE)
        dataset = stem.removesuffix("-training")
        frame = pd.read_csv(path)
        shown = {
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
        found.append(
            Section(
                id=stem,
                title=f"The same models trained in every order ({dataset})",
                command=f"make train DATASET={dataset}",
                head=list(shown),
                rows=[list(row) for row in zip(*shown.values(), strict=True)],
                notes=[],
                pictures=_pictures(folder, stem),
            )
        )
    return found


def _laws(folder: Path) -> list[Section]:
    found = []
    for path in sorted((folder / "figures").glob("*-laws.csv")):
        dataset = path.name.removesuffix("-laws.csv")
        frame = pd.read_csv(path)
        rows = [
            [row.law, row.method, f"{row.size:,}", *(f"{cost:,.1f}" for cost in (row.us_per_cell, row.least, row.most))]
            for row in frame.itertuples()
        ]
        found.append(
            Section(
                id=path.stem,
                title=f"What a cell costs by how many are handled at once ({dataset})",
                command=f"python -m harness laws --dataset {dataset}",
                head=["law", "method", "cells at once", "us a cell", "least", "most"],
                rows=rows,
                notes=[],
                pictures=_pictures(folder, path.stem, "laws"),
            )
        )
    return found


def _pictures(folder: Path, stem: str, caption: str | None = None) -> list[Picture]:
    """The figures of a grid over a data set; `caption` None: those that CAPTIONS names, `stem` being what precedes."""
    wanted = {stem: caption} if caption else {f"{stem}-{kind}": kind for kind in CAPTIONS}
    found = []
    for name, kind in wanted.items():
        png, numbers = (folder / "figures" / f"{name}{suffix}" for suffix in (".png", ".csv"))
        if png.exists() and numbers.exists():
            found.append(Picture(name, CAPTIONS[kind], _base64(png), _base64(numbers)))
    return found


def _base64(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def _claims(folder: Path) -> list[dict[str, Any]]:
    """Of reproduction.csv; [] where nobody has judged them."""
    path = folder / "reproduction.csv"
    if not path.exists():
        return []
    frame = pd.read_csv(path)
    frame["because"], frame["wrong"] = frame["because"].fillna(""), frame["wrong"].fillna("")
    return [
        row
        | {
            "published": number(row["published"]),
            "measured": "–" if pd.isna(row["measured"]) else number(row["measured"]),
            "between": "" if pd.isna(row["low"]) else f"{number(row['low'])} to {number(row['high'])}",
        }
        for row in frame.to_dict("records")
    ]


def _records(folder: Path) -> Sequence[Any]:
    paths = sorted(folder.glob("*.jsonl"))
    return [record for path in paths for record in jsonl.read(path, KINDS.get(path.name, Measurement))]


def _facts(folder: Path) -> list[tuple[str, str]]:
    """What the records say of the machine, the commits and the versions."""
    made = [record.provenance for record in _records(folder)]
    if not made:
        return []
    last = max(made, key=lambda facts: facts["utc"])
    packages = {name: version for facts in made for name, version in facts["packages"].items()}
    commits = sorted({facts["git_commit"][:7] for facts in made if facts["git_commit"]})
    return [
        ("processor", f"{last['cpu']}, {last['cores']} cores"),
        ("memory", f"{last['ram_bytes'] / 2**30:.0f} GB"),
        ("system", f"Linux {last['kernel']}"),
        ("Python", last["python"]),
        ("measured", f"{min(facts['utc'] for facts in made)[:10]} to {last['utc'][:10]}, {len(made)} records"),
        ("commits", ", ".join(commits)),
        ("versions", ", ".join(f"{name} {version}" for name, version in sorted(packages.items()))),
    ]


def _doubts(folder: Path) -> list[tuple[str, list[str]]]:
    """(doubt, the conditions that it is about), the commonest first."""
    told: dict[str, list[str]] = {}
    for path in sorted((folder / "figures").glob(f"*{TABLE}")):
        if path.name.endswith(f"-training{TABLE}"):
            continue
        for row in text.read_csv(path).to_dict("records"):
            for doubt in row["doubts"]:
                told.setdefault(doubt, []).append(f"{path.name.removesuffix(TABLE)}: {row['condition']}")
    return sorted(told.items(), key=lambda item: -len(item[1]))
