"""Table of the loaders that are too slow for a model: published training rates against measured throughput.

    python -m analysis.tables.demand results/MACHINE/loaders.jsonl [DATASET]

The data set is tahoe-mini unless another is named.
The models' rates come from the papers and were measured on other machines (results/published/model_demand.csv names the
source of each). annbatch's Figure 1b shows more models, as bars without numbers; they are omitted.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

import loaders
from analysis import published
from analysis.tables import command
from analysis.tables.summary import measured_on, of_one_code
from harness.records import jsonl
from harness.records.measurement import Measurement


def rates(measurements: Sequence[Measurement]) -> pd.Series:
    """Cells/s by (output, loader) in random order: the median over repeats of the fastest condition.

    Loaders that hold all cells in memory are excluded.
    """
    rows = [
        (m.condition.form, m.condition.loader, m.condition.key, m.cells_per_s)
        for m in of_one_code(measurements)
        if m.status == "ok" and m.condition.order == "random" and not loaders.holds_all(m.condition.loader)
    ]
    frame = pd.DataFrame(rows, columns=["output", "loader", "condition", "cells_per_s"])
    medians = frame.groupby(["output", "loader", "condition"])["cells_per_s"].median()
    return medians.groupby(["output", "loader"]).max()


def markdown(measurements: Sequence[Measurement]) -> str:
    """One row for each model: its published rate, and for each output the loaders that are slower."""
    measured = rates(measurements)
    outputs = np.unique(measured.index.get_level_values("output"))
    head = ["model", "on", "cells/s", *(f"too slow, {output}" for output in outputs)]
    lines = ["| " + " | ".join(head) + " |", "| --- | --- | ---: |" + " --- |" * len(outputs)]
    for model in published.demand().itertuples():
        cells = [model.model, model.accelerators, f"{model.cells_per_s:,}"]
        for output in outputs:
            of_output = measured[output].sort_values(ascending=False)
            slow = of_output.index[of_output < model.cells_per_s]
            cells.append(", ".join(f"`{name}`" for name in slow) or f"none of {len(of_output)}")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    command.run(__doc__, lambda records, dataset: markdown(measured_on(dataset, jsonl.read(records))))
