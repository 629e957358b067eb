"""The columns of the summary table follow from the measurements."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from analysis.figures.tokens import draw
from analysis.tables import relative, summary, text
from harness.condition import Condition, Timing
from harness.data.dataset import Dataset
from harness.grids import Grid
from harness.records.measurement import Measurement

CACHES = ("warm", "first", "bounded")


def measured(dataset: Dataset, condition: Condition, repeat: int, rows: int, **fields: object) -> Measurement:
    provenance = {"dataset_fingerprint": dataset.fingerprint, "git_dirty": False}
    values = {"status": "ok", "rows": rows, "seconds": 2.0, "fetches": 9.0, "provenance": provenance}
    return Measurement(condition=condition, timing=Timing(), repeat=repeat, **values | fields)


def table(dataset: Dataset, measurements: list[Measurement], folder: Path) -> summary.pd.DataFrame:
    conditions = tuple(dict.fromkeys(m.condition for m in measurements))
    grid = Grid(name="g", title="", timing=Timing(), conditions=conditions)
    return summary.table(grid, dataset, measurements, [], [], folder)


def test_the_share_of_the_warm_rate_is_taken_within_a_repeat(tiny_set: Dataset, tmp_path: Path) -> None:
    limits = {cache: {"memory_limit_bytes": 9} if cache == "bounded" else {} for cache in CACHES}
    conditions = {cache: Condition(dataset="tiny", loader="memmap", cache=cache, **limits[cache]) for cache in CACHES}
    rows = {"warm": (1000, 2000, 4000), "first": (500, 1000, 400), "bounded": (100, 100)}
    measurements = [
        measured(tiny_set, conditions[cache], repeat, n) for cache in CACHES for repeat, n in enumerate(rows[cache])
    ]
    frame = table(tiny_set, measurements, tmp_path).set_index("cache")
    assert np.isnan(frame.loc["warm", "times_warm"])
    assert frame.loc["first", "times_warm"] == 0.5
    assert frame.loc["bounded", "times_warm"] == pytest.approx((100 / 1000 + 100 / 2000) / 2)
    parts = text.parts(frame.reset_index())
    assert [title.split("`")[1] for title, _ in parts] == list(CACHES)
    ((_, bounded),) = [part for part in parts if "bounded" in part[0]]
    assert [line["x warm"] for line in text.lines(bounded)] == ["0.075"]
    assert text.markdown(frame.reset_index()).count("| loader |") == 3


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


def test_tokens_have_tables_of_their_own_and_no_baseline_of_cells(tiny_set: Dataset, tmp_path: Path) -> None:
    cells = [Condition(dataset="tiny", loader=name) for name in ("annloader", "memmap")]
    forms = [replace(cells[1], output="tokens", tokens=tokens) for tokens in ("geneformer", "scgpt")]
    ours = replace(forms[0], loader="native")
    rows = [
        *(measured(tiny_set, condition, 0, 1000) for condition in cells),
        *(measured(tiny_set, condition, 0, 500, tokens=n) for condition, n in zip(forms, (4000, 3000), strict=True)),
        measured(tiny_set, ours, 0, 250, tokens=2000),
    ]
    frame = table(tiny_set, rows, tmp_path)
    assert set(frame["output"]) == {"csr", "geneformer tokens", "scgpt tokens"}
    (_, plain), (title, tokens) = text.parts(frame)
    assert title.endswith(", tokens")
    assert tokens["times_baseline"].isna().all()
    assert tokens["ceiling_cells_per_s"].isna().all()
    assert [line["tokens/s"] for line in text.lines(tokens)] == ["2,000", "1,000", "1,500"]
    assert all("tokens/s" not in line for line in text.lines(plain))
    drawn = draw(frame, "tiny")
    assert list(drawn.numbers["tokens_per_s"]) == [2000, 1000, 1500]
    assert len(drawn.figure.axes) == 2
    assert draw(plain, "tiny") is None


def test_values_that_were_not_measured_are_nan(tiny_set: Dataset, tmp_path: Path) -> None:
    frame = table(tiny_set, [measured(tiny_set, Condition(dataset="tiny", loader="native"), 0, 1000)], tmp_path)
    assert frame[["cpu_us_per_cell", "read_per_delivered", "waiting_share"]].isna().all(axis=None)
    (line,) = text.lines(frame)
    assert "waiting" not in line
    assert line["disk/CSR"] == "–"


def test_a_conversion_is_compared_with_the_fastest_loader_that_needs_none() -> None:
    rates = [("native", "first", 100.0, np.nan), ("memmap", "first", 200.0, 100.0), ("bionemo", "first", 50.0, 100.0)]
    rates += [("native_downloaded", "first", 900.0, np.nan)]  # not the time of its download
    rows = [*rates, ("annloader", "first", 10.0, np.nan), ("memmap", "warm", 200.0, 100.0)]
    frame = summary.pd.DataFrame(rows, columns=["loader", "cache", "cells_per_s", "convert_s"])
    epochs = relative.pays_after(frame.assign(order="random", output="csr", disk=""), n_cells=1000)
    np.testing.assert_array_equal(epochs, [np.nan, 20, np.inf, np.nan, np.nan, np.nan])


def of_code(m: Measurement, code: str, utc: str, **fields: object) -> Measurement:
    return replace(m, provenance=m.provenance | {"code": code, "utc": utc}, **fields)


def test_a_table_is_of_the_code_that_was_measured_last(tiny_set: Dataset, tmp_path: Path) -> None:
    one, other = (measured(tiny_set, Condition(dataset="tiny", loader="native", seed=seed), 0, 1000) for seed in (0, 1))
    rows = [
        of_code(one, "old", "2026-01-01T00:00:00+00:00", rows=10),
        of_code(other, "old", "2026-01-01T00:00:01+00:00", rows=10),
        of_code(one, "new", "2026-01-02T00:00:00+00:00"),
        of_code(one, "new", "2026-01-02T00:00:00+00:00", again=True, rows=1100),
        of_code(one, "newest", "2026-01-03T00:00:00+00:00", rows=1),
    ]
    rows[-1].provenance["git_dirty"] = True
    frame = table(tiny_set, rows, tmp_path)
    assert list(frame["cells_per_s"]) == [500]
    assert frame.attrs["chance"] == [1.1]
    assert "A/A, the same condition twice in a repeat: 1.10 to 1.10 times." in text.footnotes(frame)


def test_few_repeats_have_a_range_and_many_an_interval() -> None:
    assert np.isnan(summary.interval(np.array([3.0]))).all()
    assert summary.interval(np.array([3.0, 1.0, 2.0, 9.0, 4.0])) == (1, 9)
    low, high = summary.interval(np.array([1.0, *[5.0] * 9, 99.0]))
    assert (low, high) == (5, 5)


def test_memory_is_net_of_imports_and_pages_of_files(tiny_set: Dataset, tmp_path: Path) -> None:
    fields = {"held_bytes": 700_000_000, "imported_bytes": 300_000_000, "peak_rss_bytes": 900_000_000}
    condition = Condition(dataset="tiny", loader="native")
    (line,) = text.lines(table(tiny_set, [measured(tiny_set, condition, 0, 1000, **fields)], tmp_path))
    assert (line["net, MB"], line["gross, MB"]) == ("400", "900")


def test_rows_with_little_warm_up_or_few_fetches_are_marked(tiny_set: Dataset, tmp_path: Path) -> None:
    condition = Condition(dataset="tiny", loader="native")
    frame = table(tiny_set, [measured(tiny_set, condition, 0, 1000, warmed_epochs=0.5, fetches=4.0)], tmp_path)
    assert text.lines(frame)[0]["loader"].endswith("*§")
    assert len([note for note in text.footnotes(frame) if note[0] in "*§"]) == 2


def test_repeats_without_throughput_are_named_beside_those_with_one(tiny_set: Dataset, tmp_path: Path) -> None:
    condition = Condition(dataset="tiny", loader="native")
    ok = measured(tiny_set, condition, 0, 1000)
    failed = replace(ok, repeat=1, status="failed", reason="it needs more memory", rows=None, fetches=None)
    frame = table(tiny_set, [ok, failed], tmp_path)
    (line,) = text.lines(frame)
    assert line["cells/s"] == "500"
    note = f"{condition}: without 1 of 2 repeats: failed, it needs more memory."
    assert note in text.footnotes(frame)
    without = text.footnotes(table(tiny_set, [failed], tmp_path))
    assert f"{condition}: failed, it needs more memory." in without
