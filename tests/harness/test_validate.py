"""Validation reports each kind of impossible record; records of real runs have no problems."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from harness.__main__ import main
from harness.condition import Condition, Timing
from harness.machine.host import ROOT
from harness.records import conversion, history, jsonl
from harness.records.base import encode
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
    edges=[[60.0, 3200], [120.5, 6400]],
    waiting_s=60.0,
    fetches=100.0,
    cpu_s=240.0,
    resident_before=1.0,
    resident_after=1.0,
    provenance=FACTS,
)
FIRST = Condition(dataset="d", loader="native", cache="first")
BUCKET = replace(FIRST, ttfb_ms=30.0)
TOKENS = Condition(dataset="d", loader="native", output="tokens", tokens="geneformer")
STORE = Conversion(dataset="d", loader="slaf", store="slaf/1", status="ok", seconds=3.0, provenance=FACTS)


def test_valid_records_have_no_problems() -> None:
    assert of_measurement(VALID) == []
    assert of_measurement(replace(VALID, condition=TOKENS, tokens=6400 * 1400)) == []
    assert (
        of_measurement(Measurement(condition=VALID.condition, timing=Timing(), repeat=0, status="failed", reason="x"))
        == []
    )
    assert of_conversion(STORE) == []


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"seconds": 119.0}, "shorter than the 120 s asked for"),
        ({"condition": FIRST, "resident_before": 0.02}, "2% of the store was in memory when a first condition began"),
        ({"resident_before": 0.98}, "only 98% of the store was in memory when a warm condition began"),
        ({"condition": replace(FIRST, cache="bounded", memory_limit_bytes=9)}, "nothing says by what"),
        ({"condition": replace(FIRST, disk="hdd")}, "its disk was to be hdd, and nothing says that it was"),
        (
            {
                "condition": replace(FIRST, disk="hdd"),
                "provenance": FACTS | {"limits": {"disk": "hdd", "bytes_per_s": 150_000_000}},
                "disk_read_bytes": 120 * 300_000_000,
            },
            "it read 299 MB/s from its hdd",
        ),
        ({"edges": [[60.0, 3200], [50.0, 6400]]}, "its edges are not in order"),
        ({"edges": [[60.0, 6401]]}, "its edges are not in order"),
        ({"cpu_s": 250.0}, "more than 2 core"),
        ({"condition": Condition(dataset="d", loader="native", cores=1)}, "more than 1 core"),
        ({"edges": None, "windows": [50] * 119}, "not those of its window"),
        ({"edges": None, "windows": [6000] * 120}, "not those of its window"),
        ({"waiting_s": 121.0}, "it waited 121 s of 120.5"),
        ({"resident_after": 1.5}, "no share"),
        ({"tokens": 6400}, "its output is csr, and the number of its tokens 6400"),
        ({"condition": TOKENS}, "its output is tokens, and the number of its tokens None"),
        ({"condition": TOKENS, "tokens": 6399}, "6,400 cells have 6,399 tokens, less than one each"),
        ({"disk_read_bytes": -1}, "below 0"),
        ({"disk_reads": -1}, "below 0"),
        ({"status": "failed"}, "it is failed, and yet has rows"),
    ],
)
def test_an_impossible_measurement_is_reported(changed: dict, message: str) -> None:
    assert any(message in problem for problem in of_measurement(replace(VALID, **changed)))


FED = replace(
    VALID,
    condition=Condition(dataset="d", loader="native", batch_size=32, accelerator_ms=600.0),
    accelerators=1,
    probes=[[2, 0.5, 130.0], [1, 0.93, 120.5]],
)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({}, None),
        ({"accelerators": 0, "probes": [[1, 0.5, 120.5]]}, None),
        ({"accelerators": None}, "names none"),
        ({"condition": VALID.condition}, "its condition has none"),
        ({"accelerators": 2}, "its probes do not say that 2 accelerators were fed"),
        ({"accelerators": 0, "probes": [[2, 0.5, 1.0]]}, "its probes do not say that 0"),
        ({"probes": [[1, 1.2, 120.5]]}, "a utilisation that is no share"),
        ({"rows": 6600, "edges": None}, "6,600 rows are more than 1 accelerators take in 120.5 s"),
    ],
)
def test_accelerators_that_were_not_fed_are_reported(changed: dict, message: str | None) -> None:
    reasons = of_measurement(replace(FED, **changed))
    assert any(message in reason for reason in reasons) if message else reasons == []


def test_the_cpu_times_of_several_processes_are_not_read_at_one_instant() -> None:
    workers = replace(VALID, condition=Condition(dataset="d", loader="scdataset", workers=4))
    assert of_measurement(replace(VALID, cpu_s=246.2))
    assert of_measurement(replace(workers, cpu_s=246.2)) == []
    assert of_measurement(replace(workers, cpu_s=247.0))


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


def test_a_line_that_was_removed_is_reported(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        author = ["-c", "user.name=n", "-c", "user.email=e@example.org"]
        subprocess.run(["git", "-C", str(tmp_path), *author, *arguments], check=True, capture_output=True)

    path = tmp_path / "results" / "m" / "g.jsonl"
    path.parent.mkdir(parents=True)
    git("init")
    for rows in (1.0, 2.0), (1.0, 2.0, 3.0):
        path.write_text("".join(f"{encode(replace(VALID, waiting_s=row))}\n" for row in rows))
        git("add", ".")
        git("commit", "-m", "more")
        assert list(history.removals(tmp_path / "results")) == []
    whole = path.read_text()
    path.write_text(whole.replace('"waiting_s": 2.0', '"waiting_s": 4.0'))
    ((found, reason),) = history.removals(tmp_path / "results")
    assert found == path
    assert reason.startswith("1 of its lines were removed or changed (uncommitted)")
    git("commit", "-am", "a better number")
    path.write_text(path.read_text() + whole)
    ((_, _, reason),) = [problem for problem in problems(tmp_path) if problem[1] == 0]
    assert "1 of its lines were removed or changed (commit " in reason


def test_a_bucket_serves_from_memory_and_has_to_have_served() -> None:
    served = {"received_bytes": 9, "provenance": FACTS | {"limits": {"bucket": {"ttfb_ms": 30.0}}}}
    assert of_measurement(replace(VALID, condition=BUCKET, **served)) == []
    for without in ({"received_bytes": 0}, {"provenance": FACTS}):
        m = replace(VALID, condition=BUCKET, **(served | without))
        assert of_measurement(m) == ["it was to read from a bucket, and nothing says that it did"]
    copying = replace(BUCKET, loader="native_downloaded")  # within the window it reads the files that it has copied
    assert of_measurement(replace(VALID, condition=copying, **(served | {"received_bytes": 0}))) == []
    assert of_measurement(replace(VALID, condition=copying, **(served | {"received_bytes": None})))
