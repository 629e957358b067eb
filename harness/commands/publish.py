"""Writes the tables and figures of a grid from its records."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from harness.commands.common import print_table
from harness.data.dataset import Dataset
from harness.grids import Grid
from harness.records import ceiling, conversion, jsonl
from harness.records.conversion import Conversion
from harness.records.measurement import Measurement


def publish(grids: Sequence[Grid], sets: Sequence[Dataset], folder: Path, out: Console) -> list[Path]:
    """Prints and writes the tables of a grid, and draws its figures.

    grids: the same grid over each of the data sets `sets`. folder: the results folder with the records. Returns the
    paths of the records, the tables and figures, and the folder of logs, if there is one.
    """
    # These imports take a second; a mistake on the command line is to be reported before.
    from analysis.diversity import mixing
    from analysis.figures import kinds, scaling, style
    from analysis.tables import compare, frontier, summary, text

    name, axis = grids[0].name, grids[0].axis
    path = folder / f"{name}.jsonl"
    measured = jsonl.read(path)
    converted = jsonl.read(folder / conversion.FILE, Conversion)
    ceilings = ceiling.read(folder)
    written, frames = [path], []
    (folder / "figures").mkdir(exist_ok=True)
    for grid, dataset in zip(grids, sets, strict=True):
        by_condition = summary.rows_of(grid, dataset, measured)
        if not any(by_condition.values()):
            continue
        stem = folder / "figures" / f"{dataset.name}-{name}"
        if grid.pair.accelerator_ms is not None:
            of_one_table = compare.of_one_table(summary.measured_on(dataset.name, measured, pairs=True))
            written += _accelerators(of_one_table, dataset, stem, out)
            continue
        frame = summary.table(grid, dataset, measured, converted, ceilings, folder)
        frames.append(frame)
        for title, rows in text.parts(frame):
            out.print(f"\nRegime {title}", highlight=False, markup=False)
            print_table(text.lines(rows), out)
        for note in text.footnotes(frame):
            out.print(note, highlight=False, markup=False)
        written += [_write(stem, "table.md", text.markdown(frame)), _write(stem, "table.csv", text.csv(frame))]
        if axis:
            continue
        if name == frontier.GRID and len(mixed := mixing.table(frame, dataset, folder)):
            written.append(_write(stem, "best.md", frontier.markdown(frame, mixed, by_condition)))
        _, first = text.parts(frame)[0]  # most figures show one regime
        mixed = mixing.table(first, dataset, folder)
        if len(mixed):
            written.append(_write(stem, "diversity.csv", mixing.csv(mixed)))
        numbers = kinds.Numbers(frame, first, mixed, dataset, converted, ceilings)
        for kind, (draw, _) in kinds.OF_A_GRID.items():
            if drawn := draw(numbers):
                written += style.save(drawn, stem.with_name(f"{stem.name}-{kind}"))
    if axis and frames and (drawn := scaling.draw(frames, axis, grids[0].title)):
        written += style.save(drawn, folder / "figures" / name)
    return [*written, *([folder / "logs"] if (folder / "logs").exists() else [])]


def _accelerators(measured: Sequence[Measurement], dataset: Dataset, stem: Path, out: Console) -> list[Path]:
    """Prints and writes the table, and draws the figure, of conditions with emulated accelerators."""
    from analysis.figures import accelerators as figure
    from analysis.figures import style
    from analysis.tables import accelerators

    numbers = accelerators.table(measured)
    markdown = accelerators.markdown(numbers, accelerators.chance(measured))
    out.print(f"\n{markdown}", highlight=False, markup=False)
    drawn = figure.draw(numbers, dataset.name)
    pictures = style.save(drawn, stem.with_name(f"{stem.name}-{accelerators.GRID}")) if drawn else []
    return [_write(stem, "table.md", markdown), *pictures]


def _write(stem: Path, suffix: str, text: str) -> Path:
    path = stem.with_name(f"{stem.name}-{suffix}")
    path.write_text(text)
    return path
