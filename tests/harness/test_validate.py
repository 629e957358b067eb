"""Lines that cannot be are found, one kind at a time; those that a run makes pass."""

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
SOUND = Measurement(
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


def test_sound_records_pass() -> None:
    assert of_measurement(SOUND) == []
    assert (
        of_measurement(Measurement(condition=SOUND.condition, timing=Timing(), repeat=0, status="failed", reason="x"))
        == []
    )
    assert of_conversion(STORE) == []


@pytest.mark.parametrize(
    ("changed", "said"),
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
def test_what_cannot_be_of_a_measurement(changed: dict, said: str) -> None:
    assert any(said in what for what in of_measurement(replace(SOUND, **changed)))


def test_what_cannot_be_of_a_conversion() -> None:
    assert of_conversion(replace(STORE, seconds=None))
    assert of_conversion(replace(STORE, status="failed"))


def test_the_command_names_file_and_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m" / "g.jsonl"
    path.parent.mkdir()
    for m in (
        SOUND,
        replace(SOUND, seconds=1.0),
        replace(SOUND, provenance=FACTS | {"utc": "2999-01-01T00:00:00+00:00"}),
    ):
        jsonl.append(path, m)
    jsonl.append(path.with_name(conversion.FILE), STORE)
    assert main(["validate", str(tmp_path)]) == 1
    told = capsys.readouterr().out.splitlines()
    assert any(line.startswith(f"{path}, line 2: its window of 1 s") for line in told)
    assert any(line.startswith(f"{path}, line 3: it was made in the future") for line in told)
    assert told[-1] == f"4 records: {len(told) - 1} problems"
    assert main(["validate", str(tmp_path / "nowhere")]) == 2


def test_the_committed_results_pass() -> None:
    assert list(problems(ROOT / "results")) == []
