"""After how many epochs a download is ahead of reading from the bucket, on records made by hand."""

import subprocess
import sys
from pathlib import Path

import pytest

from analysis.tables import downloading
from harness.condition import Condition, Timing
from harness.machine.host import ROOT
from harness.records import jsonl
from harness.records.measurement import Measurement

N_CELLS = 140_000  # of tahoe-chunks


def record(
    loader: str, rate: int, open_s: float, *, repeat: int = 0, block: int = 64, fetches: float = 9.0, **fields: float
) -> Measurement:
    link = {"ttfb_ms": 30.0, "link_mbps": 1000.0} | fields
    condition = Condition(
        dataset="tahoe-chunks", loader=loader, cache="first", knobs=(("block_size", block), ("fetch_factor", 128)),
        **link,
    )  # fmt: skip
    return Measurement(
        condition=condition, timing=Timing(), repeat=repeat, status="ok", rows=rate * 10, seconds=10.0, open_s=open_s,
        first_batch_s=1.0, fetches=fetches, provenance={"code": "c", "git_dirty": False, "utc": "2026"},
    )  # fmt: skip


def test_the_seconds_of_the_download_are_over_those_that_an_epoch_saves() -> None:
    (row,) = downloading.rows([record("native", 10_000, 0.5), record("native_downloaded", 20_000, 14.5)], N_CELLS)
    assert (row.open_s, row.start_s, row.cells_per_s) == ((0.5, 14.5), (1.5, 15.5), (10_000, 20_000))
    assert row.ahead_after == pytest.approx(14 / (14 - 7))  # an epoch takes 14 s and 7 s
    text = downloading.markdown([row])
    setting = "| (64, 128) | bucket, 1,000 Mbit/s, 30 ms |"
    assert f"{setting} 0.5 / 14.5 | 1.5 / 15.5 | 10,000 / 20,000 | 2.0 | 1 |" in text


@pytest.mark.parametrize(
    ("rate", "open_s", "ahead"), [(10_000, 14.5, "never"), (9_000, 14.5, "never"), (9, 0.1, "0.0")]
)
def test_a_download_that_saves_nothing_is_never_ahead(rate: int, open_s: float, ahead: str) -> None:
    table = list(downloading.rows([record("native", 10_000, 0.5), record("native_downloaded", rate, open_s)], N_CELLS))
    assert f"| {ahead} | 1 |" in downloading.markdown(table)


def test_only_the_same_setting_under_the_same_link_is_compared() -> None:
    measurements = [
        record("native", 10_000, 0.5),
        record("native", 20_000, 0.5, repeat=1),
        record("native", 10_000, 0.5, block=256, fetches=3.0),
        record("native", 10_000, 0.5, block=16, ttfb_ms=10.0),
        *(record("native_downloaded", 20_000, 14.5, block=block) for block in (64, 256, 16)),
        record("native_downloaded", 20_000, 14.5, repeat=2),
    ]
    (row,) = downloading.rows(measurements, N_CELLS)
    assert (dict(row.condition.knobs)["block_size"], row.repeats) == (64, 1)
    assert row.cells_per_s == (10_000, 20_000)


def test_the_command(tmp_path: Path) -> None:
    def run() -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "analysis.tables.downloading", str(tmp_path), "tahoe-chunks"]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)

    jsonl.append(tmp_path / "bucket.jsonl", record("native", 10_000, 0.5))
    done = run()
    assert done.returncode == 2
    assert "has no measurement of native_downloaded on tahoe-chunks" in done.stderr
    jsonl.append(tmp_path / "bucket.jsonl", record("native_downloaded", 20_000, 14.5))
    assert run().stdout.endswith("| 2.0 | 1 |\n")
