"""The common style of all figures, and their saving."""

from pathlib import Path
from typing import NamedTuple

import matplotlib
import pandas as pd
from matplotlib.figure import Figure

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")  # distinguishable with colour blindness
RISING = ("#440154", "#3b528b", "#21918c", "#5ec962", "#b8a000", "#e69f00", "#d55e00")  # in order of fetch factor
STYLE = {"font.size": 9, "axes.titlesize": 10, "savefig.dpi": 150, "pdf.fonttype": 42}


class Drawn(NamedTuple):
    """A figure, and its numbers: one row for each mark."""

    figure: Figure
    numbers: pd.DataFrame


def uncommitted(dirty: bool) -> str:
    """The suffix of a figure's title: a note if it shows measurements of uncommitted code, else an empty string."""
    return " (uncommitted code)" if dirty else ""


def where(frame: pd.DataFrame) -> str:
    """The end of a figure's title: the limited disk, or the link to a bucket, of all rows; an empty string for neither.

    frame: a table returned by `summary.table` with one disk.
    """
    (disk,) = frame["disk"].unique()
    return f", {disk}" if disk else ""


@matplotlib.rc_context(STYLE)
def save(drawn: Drawn, path: Path) -> list[Path]:
    """Writes path.png, path.pdf and path.csv, and returns their paths. The same figure gives the same bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    png, pdf, numbers = (path.with_name(path.name + suffix) for suffix in (".png", ".pdf", ".csv"))
    drawn.figure.savefig(png)
    drawn.figure.savefig(pdf, metadata={"CreationDate": None})
    drawn.numbers.to_csv(numbers, index=False, float_format="%.6g")
    return [png, pdf, numbers]
