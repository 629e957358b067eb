"""Scaling figures have a line per loader and a point per value of the axis, with the numbers of the tables."""

from pathlib import Path

import numpy as np
import pytest

from analysis.figures import scaling
from analysis.tables import summary
from harness.condition import Condition, Timing
from harness.data.dataset import Dataset
from harness.grids import Grid, datasets, expand
from harness.records.measurement import Measurement


def frame(dataset: Dataset, folder: Path, rows: dict[Condition, int]) -> summary.pd.DataFrame:
    provenance = {"dataset_fingerprint": dataset.fingerprint, "git_dirty": False}
    fields = {"status": "ok", "seconds": 2.0, "fetches": 9.0, "open_s": 0.25, "first_batch_s": 0.5, "cpu_s": 1.0}
    grid = Grid(name="g", title="", timing=Timing(), conditions=tuple(rows))
    measured = [
        Measurement(condition=c, timing=Timing(), repeat=0, rows=n, provenance=provenance, **fields)
        for c, n in rows.items()
    ]
    return summary.table(grid, dataset, measured, [], [], folder)


def test_each_loader_has_a_line(tiny_set: Dataset, tmp_path: Path) -> None:
    rows = {
        Condition(dataset="tiny", loader=loader, workers=workers): n * (workers + 1)
        for loader, n in (("scdataset", 1000), ("bionemo", 3000))
        for workers in (0, 1, 2)
    }
    figure = scaling.draw([frame(tiny_set, tmp_path, rows)], "workers", "t").figure
    rates, cost, start = figure.axes
    lines = {line.get_label(): line for line in rates.lines}
    assert set(lines) == {"scdataset", "bionemo"}
    assert lines["bionemo"].get_xdata().tolist() == [0, 1, 2]
    assert lines["bionemo"].get_ydata().tolist() == [1500, 3000, 4500]
    assert cost.lines[0].get_ydata()[0] == pytest.approx(1e6 / 3000)
    assert set(start.lines[0].get_ydata()) == {0.75}


def test_the_size_of_data_sets_can_be_the_axis(tiny_set: Dataset, tmp_path: Path) -> None:
    condition = Condition(dataset="tiny", loader="native")
    once = frame(tiny_set, tmp_path, {condition: 1000})
    twice = once.assign(n_cells=2 * tiny_set.n_cells, cells_per_s=400.0)
    assert scaling.draw([once], "n_cells", "t") is None
    (line,) = scaling.draw([twice, once], "n_cells", "t").figure.axes[0].lines
    assert line.get_xdata().tolist() == [tiny_set.n_cells, 2 * tiny_set.n_cells]
    assert line.get_ydata().tolist() == [500, 400]


@pytest.mark.parametrize("name", ["batch", "buffer", "cores", "workers", "processes", "cells", "counts"])
def test_every_grid_of_scaling_has_an_axis_that_is_drawn(name: str) -> None:
    grid = expand(f"scale-{name}", "d")
    assert grid.axis in scaling.AXES
    assert not grid.timing.order_s
    if not datasets(grid.name) and grid.axis != "buffer_rows":
        assert len(np.unique([getattr(c, grid.axis) for c in grid.conditions])) > 1
