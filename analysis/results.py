"""Generates docs/results.md: the text is in results.md.j2, and the tables come from the committed records."""

from pathlib import Path

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from analysis.tables import ceilings, demand, ratios
from analysis.tables.summary import measured_on
from harness.grids import expand
from harness.machine.host import ROOT
from harness.records import ceiling, jsonl

PAGE = ROOT / "docs" / "results.md"


def write() -> Path:
    """Writes docs/results.md atomically and returns its path."""
    aside = PAGE.with_suffix(".partial")
    aside.write_text(render(ROOT / "results"))
    aside.rename(PAGE)
    return PAGE


def render(results: Path) -> str:
    """The page as markdown. results: the folder that contains one folder for each machine."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), undefined=StrictUndefined, trim_blocks=True
    )
    environment.globals |= {
        "table": lambda machine, stem: (results / machine / "figures" / f"{stem}-table.md").read_text().rstrip(),
        "ratios": lambda machine, grid, dataset="tahoe-mini": _ratios(results / machine / f"{grid}.jsonl", dataset),
        "demand": lambda machine: demand.markdown(
            measured_on("tahoe-mini", jsonl.read(results / machine / "loaders.jsonl"))
        ).rstrip(),
        "ceilings": lambda machine: ceilings.markdown(ceiling.read(results / machine)).rstrip(),
        "scaling": lambda machine, grid: _scaling(pd.read_csv(results / machine / "figures" / f"{grid}.csv")),
        "title": lambda grid: expand(grid, "any").title.lower(),
    }
    return environment.get_template("results.md.j2").render().rstrip() + "\n"


def _ratios(records: Path, dataset: str) -> str:
    """The markdown table of a grid's throughput ratios on one data set, without the comparisons not measured."""
    lines = ratios.markdown(records.stem, measured_on(dataset, jsonl.read(records))).splitlines()
    return "\n".join(line for line in lines if "not measured" not in line)


def _scaling(numbers: pd.DataFrame) -> str:
    """A markdown table of throughput in random order: a row for each loader and output, a column for each axis value.

    numbers: the CSV file of a scaling figure. Its fourth column is the axis.
    """
    axis = numbers.columns[3]
    rows = numbers[numbers["order"] == "random"]
    over = rows.pivot_table(index=["loader", "output"], columns=axis, values="cells_per_s")
    head = ["loader", "output", *(f"{value:,.0f}" for value in over.columns)]
    lines = [head, ["---", "---", *["---:"] * len(over.columns)]]
    for (loader, output), rates in over.iterrows():
        lines.append([f"`{loader}`", output, *("–" if pd.isna(rate) else f"{rate:,.0f}" for rate in rates)])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
