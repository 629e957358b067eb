"""The columns of the summary table follow from the measurements."""

from pathlib import Path

import numpy as np
import pytest

from analysis.tables import summary, text
from harness.condition import Condition, Timing
from harness.data.dataset import Dataset
from harness.grids import Grid
from harness.records.measurement import Measurement

CACHES = ("warm", "cold", "bounded")


def measured(dataset: Dataset, condition: Condition, repeat: int, rows: int, **fields: object) -> Measurement:
    provenance = {"dataset_fingerprint": dataset.fingerprint, "git_dirty": False}
    values = {"status": "ok", "rows": rows, "seconds": 2.0, "fetches": 9.0, "provenance": provenance}
    return Measurement(condition=condition, timing=Timing(), repeat=repeat, **values | fields)


def table(dataset: Dataset, measurements: list[Measurement], folder: Path) -> summary.pd.DataFrame:
    conditions = tuple(dict.fromkeys(m.condition for m in measurements))
    grid = Grid(name="g", title="", timing=Timing(), conditions=conditions)
    return summary.table(grid, dataset, measurements, [], [], folder)


def test_the_share_of_the_warm_rate_is_taken_within_a_repeat(tiny_set: Dataset, tmp_path: Path) -> None:
    conditions = {cache: Condition(dataset="tiny", loader="memmap", cache=cache) for cache in CACHES}
    rows = {"warm": (1000, 2000, 4000), "cold": (500, 1000, 400), "bounded": (100, 100)}
    measurements = [
        measured(tiny_set, conditions[cache], repeat, n) for cache in CACHES for repeat, n in enumerate(rows[cache])
    ]
    frame = table(tiny_set, measurements, tmp_path).set_index("cache")
    assert np.isnan(frame.loc["warm", "times_warm"])
    assert frame.loc["cold", "times_warm"] == 0.5
    assert frame.loc["bounded", "times_warm"] == pytest.approx((100 / 1000 + 100 / 2000) / 2)
    lines = {line["loader"]: line for line in text.lines(frame.reset_index())}
    assert {name.rstrip("*°‡") for name in lines} == {"memmap", "memmap warm", "memmap bounded"}
    assert next(line["x warm"] for name, line in lines.items() if "bounded" in name) == "0.075"


def test_cpu_time_disk_reads_and_waiting_are_normalised(tiny_set: Dataset, tmp_path: Path) -> None:
    condition = Condition(dataset="tiny", loader="native", consumer_ms=5.0)
    delivered = 1000 * 8 * tiny_set.nnz / tiny_set.n_cells
    fields = {"cpu_s": 0.5, "disk_read_bytes": round(3 * delivered), "waiting_s": 0.5}
    frame = table(tiny_set, [measured(tiny_set, condition, 0, 1000, **fields)], tmp_path)
    row = frame.iloc[0]
    assert row["cpu_us_per_cell"] == pytest.approx(500)
    assert row["read_per_delivered"] == pytest.approx(3, rel=1e-3)
    assert row["waiting_share"] == 0.25
    (line,) = text.lines(frame)
    assert (line["CPU, us/cell"], line["disk/CSR"], line["waiting"]) == ("500", "3.00", "25%")


def test_values_that_were_not_measured_are_nan(tiny_set: Dataset, tmp_path: Path) -> None:
    frame = table(tiny_set, [measured(tiny_set, Condition(dataset="tiny", loader="native"), 0, 1000)], tmp_path)
    assert frame[["cpu_us_per_cell", "read_per_delivered", "waiting_share"]].isna().all(axis=None)
    (line,) = text.lines(frame)
    assert "waiting" not in line
    assert line["disk/CSR"] == "–"


def test_a_conversion_is_compared_with_the_fastest_loader_that_needs_none() -> None:
    rates = [("native", "cold", 100.0, np.nan), ("memmap", "cold", 200.0, 100.0), ("bionemo", "cold", 50.0, 100.0)]
    rows = [*rates, ("annloader", "cold", 10.0, np.nan), ("memmap", "warm", 200.0, 100.0)]
    frame = summary.pd.DataFrame(rows, columns=["loader", "cache", "cells_per_s", "convert_s"])
    epochs = summary.pays_after(frame.assign(order="random", output="csr"), n_cells=1000)
    np.testing.assert_array_equal(epochs, [np.nan, 20, np.inf, np.nan, np.nan])
