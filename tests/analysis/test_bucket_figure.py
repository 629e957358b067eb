"""The figure of a bucket has a line for each setting, and what the link allows it for the bytes that it received."""

from pathlib import Path

import pandas as pd
import pytest

from analysis.figures import bucket
from harness.condition import Condition
from harness.data.dataset import Dataset
from harness.grids import CSR_BYTES
from tests.analysis.test_scaling import frame


def condition(loader: str, mbps: float | None = 1000, ttfb_ms: float = 30, block_size: int = 8) -> Condition:
    knobs = (("block_size", block_size), ("fetch_factor", 4)) if loader == "native" else ()
    link = {"link_mbps": mbps, "ttfb_ms": ttfb_ms}
    return Condition(dataset="tiny", loader=loader, knobs=knobs, cache="first", **link)


ROWS = {
    condition("native"): 800,
    condition("native", ttfb_ms=100): 600,
    condition("native", block_size=2): 400,
    condition("native", mbps=2500): 1200,
    condition("native", mbps=None, ttfb_ms=0): 1600,
    condition("annbatch"): 500,
}


@pytest.fixture
def rows(tiny_set: Dataset, tmp_path: Path) -> pd.DataFrame:
    """Rates of half of ROWS in cells/s; of every cell ten times its bytes as CSR were received."""
    return frame(tiny_set, tmp_path, ROWS).assign(read_per_delivered=10.0)


def test_a_setting_has_a_line_over_time_and_one_over_the_link(rows: pd.DataFrame) -> None:
    drawn = bucket.draw(rows, "tiny")
    over_time, over_link, every = drawn.figure.axes
    lines = [line for ax in (over_time, over_link) for line in ax.lines if line.get_linestyle() == "-"]
    assert [line.get_ydata().tolist() for line in lines] == [[400, 300], [200], [400, 600, 800], [200]]
    assert [tick.get_text() for tick in over_time.get_xticklabels()] == ["30", "100"]
    assert [tick.get_text() for tick in over_link.get_xticklabels()] == ["1,000", "2,500", "no limit,\n0 ms"]
    assert [tick.get_text() for tick in every.get_yticklabels()] == ["native (2, 4)", "annbatch", "native (8, 4)"]
    assert len(drawn.numbers) == len(ROWS)


def test_the_link_allows_its_rate_over_the_bytes_received(rows: pd.DataFrame, tiny_set: Dataset) -> None:
    received = 10 * CSR_BYTES * tiny_set.nnz / tiny_set.n_cells
    numbers = bucket.draw(rows, "tiny").numbers.set_index("ttfb_ms")
    assert numbers["received_bytes_per_cell"].tolist() == pytest.approx([received] * len(ROWS))
    assert numbers.loc[100, "link_cells_per_s"] == pytest.approx(125e6 / received)
    assert pd.isna(numbers.loc[0, "link_cells_per_s"])


def test_a_loader_that_received_nothing_within_its_window_has_no_such_rate(rows: pd.DataFrame) -> None:
    rows.loc[rows["loader"] == "annbatch", "read_per_delivered"] = 0.0
    numbers = bucket.draw(rows, "tiny").numbers.set_index("loader")
    assert pd.isna(numbers.loc["annbatch", "link_cells_per_s"])


def test_rows_of_one_link_alone_or_of_files_have_no_such_figure(rows: pd.DataFrame) -> None:
    assert bucket.draw(rows[rows["disk"] == condition("native").where], "tiny") is None
    assert bucket.draw(rows[rows["disk"] == condition("native", mbps=None, ttfb_ms=0).where], "tiny") is None
    files = [Condition(dataset="tiny", loader="native") for _ in rows.index]
    assert bucket.draw(rows.assign(condition=files, disk=""), "tiny") is None


def test_few_fetches_are_marked(rows: pd.DataFrame) -> None:
    rows.loc[rows["loader"] == "annbatch", "fetches"] = 4.9
    every = bucket.draw(rows, "tiny").figure.axes[-1]
    assert "annbatch*" in [tick.get_text() for tick in every.get_yticklabels()]
