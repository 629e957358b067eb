"""Cost of converting and keeping each store, and the throughput from it, as in annbatch's Figure 2d."""

from collections.abc import Sequence

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullFormatter

import loaders
from analysis import published
from analysis.figures.epoch import at_random
from analysis.figures.style import COLOURS, STYLE, Drawn, where
from analysis.tables import relative
from harness.data.dataset import Dataset
from harness.records.conversion import Conversion


@matplotlib.rc_context(STYLE)
def stores(conversions: Sequence[Conversion], frame: pd.DataFrame, dataset: Dataset) -> Drawn | None:
    """For each store: cells converted per second, bytes per cell on disk, and the highest cells/s in random order.

    The original files are shown for comparison. Hollow: published by annbatch's authors.

    frame: a table returned by `summary.table`. None if no conversion succeeded, or for fewer than two stores.
    """
    converted = relative.stores_made(conversions, dataset)
    rows = at_random(frame[frame["output"] == "csr"])
    fastest = rows.groupby(rows["loader"].map(lambda name: loaders.get(name).store))["cells_per_s"].max()
    if not converted or len(fastest) < 2:
        return None
    numbers = pd.DataFrame(
        {
            "store": store,
            "made_of": converted[store].loader if store in converted else "",
            "converted_cells_per_s": dataset.n_cells / converted[store].seconds if store in converted else np.nan,
            "bytes_per_cell": (converted[store].provenance["store_bytes"] if store in converted else dataset.size_bytes)
            / dataset.n_cells,
            "random_cells_per_s": rate,
        }
        for store, rate in fastest.sort_values(ascending=False).items()
    )
    theirs = published.conversions()
    titles = {
        "converted_cells_per_s": "cells converted per second",
        "bytes_per_cell": "bytes per cell on disk",
        "random_cells_per_s": "cells/s in random order, csr",
    }
    figure = Figure(figsize=(9.6, 0.3 * len(numbers) + 1.5), layout="constrained")
    for ax, (column, title) in zip(figure.subplots(1, 3, sharey=True), titles.items(), strict=True):
        ax.barh(range(len(numbers)), numbers[column], color=COLOURS[0])
        if column == "converted_cells_per_s":
            for i, row in enumerate(numbers.itertuples()):
                for other in theirs[
                    (theirs["loader"] == row.made_of) & (theirs["what"] == "h5ad to zarr")
                ].itertuples():
                    ax.plot(other.cells / other.seconds, i, "s", mfc="none", color="k", ms=6)
        ax.set_title(title, fontsize=9)
        if column == "random_cells_per_s":  # the values of the other columns differ only a few times
            ax.set_xscale("log")
            ax.xaxis.set_minor_formatter(NullFormatter())
        else:
            ax.xaxis.set_major_locator(MaxNLocator(4))
        ax.set_yticks(range(len(numbers)), numbers["store"])
    figure.axes[0].invert_yaxis()
    figure.suptitle(f"Stores of {dataset.name}{where(frame)}; hollow: published by annbatch's authors", fontsize=10)
    return Drawn(figure, numbers)
