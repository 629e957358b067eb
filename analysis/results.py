"""Generates docs/results.md, and a section of docs/method.md, from the committed records.

The text of docs/results.md is in results.md.j2.
"""

from pathlib import Path

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from analysis.tables import accelerators, ceilings, demand, downloading, frontier, losses, ratios, slaf, steps
from analysis.tables.summary import measured_on
from harness.grids import expand
from harness.machine.host import ROOT
from harness.records import ceiling, jsonl
from harness.records.measurement import RULES_EDITION
from harness.records.steps import FILE, Steps

PAGE = ROOT / "docs" / "results.md"
METHOD = ROOT / "docs" / "method.md"
MACHINES = {"reference-2core": "2 cores of an AMD EPYC", "reference-2core-xeon": "2 cores of an Intel Xeon"}
"""The machines whose records the documents show."""


def write() -> list[Path]:
    """Writes docs/results.md and the section of docs/method.md, each atomically, and returns their paths."""
    results = ROOT / "results"
    for page, text in ((PAGE, render(results)), (METHOD, with_losses(METHOD.read_text(), results))):
        aside = page.with_suffix(".partial")
        aside.write_text(text)
        aside.rename(page)
    return [PAGE, METHOD]


def with_losses(text: str, results: Path) -> str:
    """The text with the tables of `losses` between its markers. results: as for `render`."""
    before, rest = text.split("<!-- losses -->")
    _, after = rest.split("<!-- /losses -->")
    tables = []
    for machine, about in MACHINES.items():
        if compared := losses.comparisons(results / machine):
            tables.append(f"On {about} (`results/{machine}`):\n\n{losses.markdown(compared)}")
    return f"{before}<!-- losses -->\n\n{'\n'.join(tables or [losses.markdown([])])}\n<!-- /losses -->{after}"


def render(results: Path) -> str:
    """The page as markdown. results: the folder that contains one folder for each machine."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), undefined=StrictUndefined, trim_blocks=True
    )
    environment.globals |= {
        "machine": lambda grid: _newest(results, grid),
        "measured": lambda machine, grid, dataset: _measured(results / machine / f"{grid}.jsonl", dataset),
        "table": lambda machine, stem: (results / machine / "figures" / f"{stem}-table.md").read_text().rstrip(),
        "ratios": lambda machine, grid, dataset: _ratios(results / machine / f"{grid}.jsonl", dataset),
        "best": lambda machine: _best(results / machine),
        "demand": lambda machine: demand.markdown(
            measured_on("tahoe-mini", jsonl.read(results / machine / "loaders.jsonl"))
        ).rstrip(),
        "downloads": lambda machine, dataset: downloading.of_folder(results / machine, dataset).rstrip(),
        "fed": lambda machine, dataset: accelerators.of_folder(results / machine, dataset).rstrip(),
        "ceilings": lambda machine: ceilings.markdown(ceiling.read(results / machine)).rstrip(),
        "slaf": lambda dataset: _slaf(results, dataset),
        "scaling": lambda machine, grid: _scaling(pd.read_csv(results / machine / "figures" / f"{grid}.csv")),
        "definition_of_mfu": steps.DEFINITION,
        "steps": lambda: _steps(results),
        "drawn": lambda machine, name: (results / machine / "figures" / name).exists(),
        "title": lambda grid: expand(grid, "any").title.lower(),
    }
    return environment.get_template("results.md.j2").render().rstrip() + "\n"


def _measured(records: Path, dataset: str) -> bool:
    """Whether a grid's file holds a measurement of the data set by this edition of the rules."""
    return any(
        m.status == "ok" and m.provenance.get("rules_edition") == RULES_EDITION
        for m in measured_on(dataset, jsonl.read(records))
    )


def _newest(results: Path, grid: str) -> str | None:
    """The machine with the newest measurement of a grid by this edition of the rules; None if there is none."""
    newest = {}
    for machine in MACHINES:
        rows = jsonl.read(results / machine / f"{grid}.jsonl")
        if rows and rows[-1].provenance.get("rules_edition") == RULES_EDITION:
            newest[machine] = rows[-1].provenance["utc"]
    return max(newest, key=newest.__getitem__, default=None)


def _ratios(records: Path, dataset: str) -> str:
    """The markdown table of a grid's throughput ratios on one data set, without the comparisons not measured."""
    lines = ratios.markdown(records.stem, measured_on(dataset, jsonl.read(records), pairs=True)).splitlines()
    return "\n".join(line for line in lines if not line.endswith("| – | – | – | 0 |") or "\\*" in line)


def _steps(results: Path) -> dict[tuple[str, str], str]:
    """The tables of training steps by machine and data set, of all machines, since a GPU may be on any."""
    tables = {}
    for path in sorted(results.glob(f"*/{FILE}")):
        runs = jsonl.read(path, Steps)
        for dataset in dict.fromkeys(run.dataset for run in runs):
            frame = steps.table([run for run in runs if run.dataset == dataset])
            tables[path.parent.name, dataset] = steps.bodies(frame).rstrip()
    return tables


def _best(folder: Path) -> dict[str, str]:
    """By data set, the tables of the grid `frontier` that `make figures` wrote into a machine's folder of figures.

    Without those of data sets for which the grid is not finished.
    """
    ending = f"-{frontier.GRID}-best.md"
    tables = {path.name.removesuffix(ending): path for path in sorted((folder / "figures").glob(f"*{ending}"))}
    rows = jsonl.read(folder / f"{frontier.GRID}.jsonl")
    return {
        dataset: path.read_text().rstrip()
        for dataset, path in tables.items()
        if frontier.is_finished(measured_on(dataset, rows))
    }


def _slaf(results: Path, dataset: str) -> dict[str, str]:
    """The tables of SLAF's own experiments on a data set, by machine; of those that have records."""
    tables = {machine: slaf.of_folder(results / machine, dataset).rstrip() for machine in MACHINES}
    return {machine: text for machine, text in tables.items() if text}


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
