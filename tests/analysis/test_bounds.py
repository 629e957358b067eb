"""The figure of diversity shows measured points on expected curves."""

from pathlib import Path

import numpy as np
import pytest

from analysis import published
from analysis.diversity import expected
from analysis.figures import bounds
from analysis.tables import summary
from harness.condition import Condition, Timing
from harness.data.dataset import Dataset
from harness.grids import Grid
from harness.records import orders
from harness.records.measurement import Measurement


def test_each_setting_has_a_point_and_each_fetch_factor_a_line(tiny_set: Dataset, tmp_path: Path) -> None:
    provenance = {"dataset_fingerprint": tiny_set.fingerprint, "git_dirty": False}
    conditions = [
        Condition(dataset="tiny", loader="native", batch_size=16, knobs=(("block_size", b), ("fetch_factor", f)))
        for b in (1, 4)
        for f in (1, 2)
    ]
    rng = np.random.default_rng(0)
    for condition in conditions:
        ids = [rng.permutation(tiny_set.n_cells)[:16] for _ in range(8)]
        orders.save(orders.path(tmp_path, condition, tiny_set.fingerprint), ids, 16)
    measured = [
        Measurement(
            condition=c, timing=Timing(), repeat=0, status="ok", rows=9, seconds=1.0, fetches=9.0, provenance=provenance
        )
        for c in conditions
    ]
    grid = Grid(name="g", title="", timing=Timing(), conditions=tuple(conditions))
    frame = summary.table(grid, tiny_set, measured, [], [], tmp_path)
    drawn = bounds.draw(frame, tiny_set)
    (ax,) = drawn.figure.axes
    lines = {line.get_label(): line for line in ax.lines}
    codes = tiny_set.labels(frame.attrs["label"])
    shares = np.bincount(codes) / len(codes)
    assert lines["f = 2"].get_ydata()[0] == pytest.approx(expected.exact(shares, 16, 1, 2))
    points = sorted(y for container in ax.containers for y in container[0].get_ydata())
    assert points == pytest.approx(sorted(frame["entropy_bits"]))
    assert sorted(drawn.numbers.query("line == 'measured'")["bits"]) == points
    assert bounds.draw(frame[frame["fetch_factor"] == 1], tiny_set) is None


def test_the_published_table_has_one_value_for_each_setting() -> None:
    frame = published.block_shuffling()
    assert len(frame) == 36
    assert not frame.duplicated(["block_size", "fetch_factor"]).any()
    best = frame.set_index(["block_size", "fetch_factor"])["cells_per_s"]
    assert best[1024, 1024] == 4032.9
