"""Would the accelerator wait? What models were published to take, against what loaders were measured to give.

    python -m analysis.tables.demand results/MACHINE/loaders.jsonl

Of tahoe-mini, or of the data set that is named after it.
The models' numbers are from the papers and were taken on other machines (results/published/model_demand.csv names the
source of each). annbatch's Figure 1b shows more models, as bars without numbers; they are left out.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

import loaders
from analysis import published
from analysis.tables import command
from analysis.tables.summary import measured_on
from harness.records import jsonl
from harness.records.measurement import Measurement


def rates(measurements: Sequence[Measurement]) -> pd.Series:
    """Median cells/s over the repeats of each (output, loader) in random order, of its fastest setting."""
    rows = [
        (m.condition.output, m.condition.loader, m.condition.knobs, m.cells_per_s)
        for m in measurements
        if m.status == "ok" and m.condition.order == "random" and not loaders.holds_all(m.condition.loader)
    ]
    frame = pd.DataFrame(rows, columns=["output", "loader", "knobs", "cells_per_s"])
    medians = frame.groupby(["output", "loader", "knobs"])["cells_per_s"].median()
    return medians.groupby(["output", "loader"]).max()


def markdown(measurements: Sequence[Measurement]) -> str:
    """A line a model: the loaders that do not keep up with it, for each output."""
    measured = rates(measurements)
    outputs = np.unique(measured.index.get_level_values("output"))
    head = ["model", "on", "cells/s", *(f"too slow, {output}" for output in outputs)]
    lines = ["| " + " | ".join(head) + " |", "| --- | --- | ---: |" + " --- |" * len(outputs)]
    for model in published.demand().itertuples():
        cells = [model.model, model.accelerators, f"{model.cells_per_s:,}"]
        for output in outputs:
            mine = measured[output].sort_values(ascending=False)
            slow = mine.index[mine < model.cells_per_s]
            cells.append(", ".join(f"`{name}`" for name in slow) or f"none of {len(mine)}")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    command.run(__doc__, lambda records, dataset: markdown(measured_on(dataset, jsonl.read(records))))
