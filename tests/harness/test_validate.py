"""Validation reports each kind of impossible record; records of real runs have no problems."""

from dataclasses import replace
from pathlib import Path

import pytest

from harness.__main__ import main
from harness.condition import Condition, Timing
from harness.machine.host import ROOT
from harness.records import conversion, jsonl
from harness.records.conversion import Conversion
from harness.records.measurement import Measurement
from harness.records.validate import of_conversion, of_measurement, problems

FACTS = {"utc": "2026-01-02T03:04:05+00:00", "machine": "m", "dataset_fingerprint": "f", "cores": 2, "store_bytes": 9}
VALID = Measurement(
    condition=Condition(dataset="d", loader="native"),
    timing=Timing(),
    repeat=0,
    status="ok",
    rows=6400,
    seconds=120.5,
    windows=[50] * 120,
    waiting_s=60.0,
    fetches=100.0,
    cpu_s=240.0,
    resident_before=0.0,
    resident_after=1.0,
    provenance=FACTS,
)
STORE = Conversion(dataset="d", loader="slaf", store="slaf/1", status="ok", seconds=3.0, provenance=FACTS)


def test_valid_records_have_no_problems() -> None:
    assert of_measurement(VALID) == []
    assert (
        of_measurement(Measurement(condition=VALID.condition, timing=Timing(), repeat=0, status="failed", reason="x"))
        == []
    )
    assert of_conversion(STORE) == []


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"seconds": 119.0}, "shorter than the 120 s asked for"),
        ({"resident_before": 0.02}, "2% of the store was in memory when a cold condition began"),
        ({"condition": Condition(dataset="d", loader="native", cache="bounded")}, "nothing says by what"),
        ({"cpu_s": 250.0}, "more than 2 core"),
        ({"condition": Condition(dataset="d", loader="native", cores=1)}, "more than 1 core"),
        ({"windows": [50] * 119}, "not those of its window"),
        ({"windows": [6000] * 120}, "not those of its window"),
        ({"waiting_s": 121.0}, "it waited 121 s of 120.5"),
        ({"resident_after": 1.5}, "no share"),
        ({"disk_read_bytes": -1}, "below 0"),
        ({"status": "failed"}, "it is failed, and yet has rows"),
    ],
)
def test_an_impossible_measurement_is_reported(changed: dict, message: str) -> None:
    assert any(message in problem for problem in of_measurement(replace(VALID, **changed)))


def test_an_impossible_conversion_is_reported() -> None:
    assert of_conversion(replace(STORE, seconds=None))
    assert of_conversion(replace(STORE, status="failed"))


def test_the_command_reports_file_and_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m" / "g.jsonl"
    path.parent.mkdir()
    for m in (
        VALID,
        replace(VALID, seconds=1.0),
        replace(VALID, provenance=FACTS | {"utc": "2999-01-01T00:00:00+00:00"}),
    ):
        jsonl.append(path, m)
    jsonl.append(path.with_name(conversion.FILE), STORE)
    assert main(["validate", str(tmp_path)]) == 1
    printed = capsys.readouterr().out.splitlines()
    assert any(line.startswith(f"{path}, line 2: its window of 1 s") for line in printed)
    assert any(line.startswith(f"{path}, line 3: it was made in the future") for line in printed)
    assert printed[-1] == f"4 records: {len(printed) - 1} problems"
    assert main(["validate", str(tmp_path / "nowhere")]) == 2


def test_the_committed_results_have_no_problems() -> None:
    assert list(problems(ROOT / "results")) == []
