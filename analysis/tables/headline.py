"""The README's table: eight rows of the grid `geometry`, in long chunks and in short ones.

    python -m analysis.tables.headline results/MACHINE

Long chunks are those of files as large as Tahoe-100M's, and short ones those of small files.
"""

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

import loaders
from analysis.tables import command, text
from harness.errors import UserError
from loaders.protocol import UNCONVERTED

GRID, LONG, SHORT = "geometry", "tahoe-chunks", "tahoe-mini"
ROWS = (
    *(("native", "csr", block, fetch) for block, fetch in ((256, 64), (64, 256), (16, 64))),
    *(("scdataset", "csr", block, fetch) for block, fetch in ((256, 64), (64, 256), (16, 64))),
    ("annloader", "csr", None, None),
    ("cellstream", "csr", None, None),
)
"""(loader, output, block size, fetch factor) of each row."""


def markdown(folder: Path) -> str:
    """The table as markdown. folder: a machine's folder, in which `make figures` has written the grid's tables.

    Raises UserError if the tables, or a row of them, are missing.
    """
    long, short = (_table(folder, dataset) for dataset in (LONG, SHORT))
    head = ["loader", "reads", "block", "fetch", "cells/s", "short chunks", "counts/s, M", "entropy, bits", "net, MB"]
    lines = [head, ["---", "---", *["---:"] * (len(head) - 2)]]
    for loader, output, block, fetch in ROWS:
        one, other = (_row(frame, loader, output, block, fetch) for frame in (long, short))
        shown = text.lines(pd.DataFrame([one]))[0]
        reads = "h5ad as it is" if loaders.get(loader).store == UNCONVERTED else "its own store"
        rates = [shown["cells/s"], f"{other['cells_per_s']:,.0f}"]
        cells = [shown["loader"], reads, shown["block"], shown["fetch"], *rates]
        lines.append([*cells, shown["counts/s, M"], shown["entropy, bits"], shown["net, MB"]])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def _table(folder: Path, dataset: str) -> pd.DataFrame:
    path = folder / "figures" / f"{dataset}-{GRID}-table.csv"
    if not path.exists():
        raise UserError(f"{path} is not there: GRID={GRID} REPEAT=3 make bench RESULTS={folder}")
    return text.read_csv(path)


def _row(frame: pd.DataFrame, loader: str, output: str, block: int | None, fetch: int | None) -> Mapping[str, object]:
    """The row of a setting; None selects a loader without this parameter."""
    rows = frame[(frame["loader"] == loader) & (frame["output"] == output) & (frame["order"] == "random")]
    for name, value in (("block_size", block), ("fetch_factor", fetch)):
        rows = rows if value is None else rows[rows[name] == value]
    if len(rows) != 1:
        raise UserError(f"{GRID} has {len(rows)} rows of {loader} with block {block} and fetch {fetch}, not one.")
    return rows.iloc[0].to_dict()


if __name__ == "__main__":
    command.run(__doc__, markdown, of_a_dataset=False)
