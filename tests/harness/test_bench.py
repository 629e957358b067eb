"""`bench` from end to end, with real data, real workers and real signals."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import h5py
import pytest

from harness.grids import expand
from harness.records import jsonl
from harness.records.base import encode
from harness.records.measurement import Measurement
from loaders import unavailable
from tests.conftest import as_a_user, skip_unless_available

Run = Callable[..., subprocess.CompletedProcess[str]]

ABSENT = [name for name in ("scdataset", "annloader") if unavailable(name)]
"""Loaders of the smoke grid, one row each, that a light installation does not have."""


def rows(folder: Path, grid: str = "smoke") -> list[Measurement]:
    (path,) = folder.glob(f"results/*/{grid}.jsonl")
    return jsonl.read(path)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, tiny_folder: Path) -> tuple[Path, str]:
    """A folder in which the smoke grid has been run, and the standard output of that run."""
    folder = tmp_path_factory.mktemp("finished")
    command = [sys.executable, "-m", "harness", "bench", "--dataset", str(tiny_folder), "--grid", "smoke"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return folder, done.stdout


def test_every_condition_has_its_row(finished: tuple[Path, str]) -> None:
    folder, _ = finished
    measurements = rows(folder)
    assert {m.condition for m in measurements} == set(expand("smoke", "tiny").conditions)
    for m in measurements:
        if m.condition.loader in ABSENT:
            assert m.status == "skipped"
            assert "not installed" in m.reason
            continue
        expected = "skipped" if m.condition.loader == "stream" and m.condition.order == "random" else "ok"
        assert m.status == expected, m.reason
        assert m.resident_before == 1
    assert [m.condition for m in measurements if m.again] == [expand("smoke", "tiny").pair]
    assert all("/" not in json.dumps(m.provenance["packages"]) for m in measurements)


FIGURES = ("throughput", "lines", "entropy", "bounds", "loaders", "mixing", "frontier")


def test_tables_and_figures_are_written_and_listed_last(finished: tuple[Path, str]) -> None:
    for name in ("scdataset", "annloader"):  # without them two of the figures have nothing to compare
        skip_unless_available(name)
    folder, printed = finished
    written = printed.split("Written:")[1].split()
    kinds = ["jsonl", "table.md", "table.csv", "diversity.csv"]
    kinds += [f"{figure}.{form}" for figure in FIGURES for form in ("png", "pdf", "csv")]
    assert len(written) == len(kinds)
    assert all(path.endswith(kind) for path, kind in zip(written, kinds, strict=True))
    for path in written:
        assert (folder / path).stat().st_size > 0
    table = (folder / next(p for p in written if p.endswith("table.md"))).read_text()
    assert table.count("\n| native") == 6
    assert "stream random dense batch_size=16: skipped, stream cannot honour this condition" in table
    csv = (folder / next(p for p in written if p.endswith("table.csv"))).read_text()
    assert csv.splitlines()[0].startswith("loader,order,output,block_size,fetch_factor")


def test_entropy_falls_with_the_block_size_and_rises_with_the_fetch_factor(finished: tuple[Path, str]) -> None:
    import pandas as pd

    (path,) = finished[0].glob("results/*/figures/*table.csv")
    frame = pd.read_csv(path)
    frame = frame[(frame["loader"] == "native") & (frame["output"] == "csr") & (frame["order"] == "random")]
    bits = frame.set_index(["block_size", "fetch_factor"])["entropy_bits"]
    assert bits[8, 1] < bits[8, 4] < frame["ideal_bits"].iloc[0] + 0.05
    assert bits[1, 1] == pytest.approx(frame["ideal_bits"].iloc[0], abs=0.1)


def test_a_second_run_measures_nothing_and_repeat_adds_rows(
    finished: tuple[Path, str], harness: Run, tiny_folder: Path
) -> None:
    folder, _ = finished
    before = len(rows(folder))
    command = ("bench", "--dataset", tiny_folder, "--grid", "smoke", "--loaders", "reference")
    again = harness(*command, folder=folder)
    assert again.returncode == 0, again.stderr
    assert "0 measurements to make" in again.stdout
    assert len(rows(folder)) == before
    assert harness(*command, "--repeat", "3", folder=folder).returncode == 0
    added = rows(folder)[before:]
    assert [(m.condition.loader, m.repeat) for m in added] == [("reference", 1), ("reference", 2)]


def test_status_lists_the_records_and_what_is_doubtful(finished: tuple[Path, str]) -> None:
    printed = subprocess.run(
        [sys.executable, "-m", "harness", "status"],
        cwd=finished[0],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout
    assert "smoke.jsonl" in printed
    assert f"{1 + len(ABSENT)} skipped" in printed
    assert "one repeat has no range" in printed


QUICK = ("--grid", "smoke", "--loaders", "reference,stream")
"""Three conditions, whose loaders are imported quickly. One is skipped."""


def start(folder: Path, dataset: Path) -> subprocess.Popen[str]:
    command = as_a_user("bench", "--dataset", dataset, *QUICK)
    return subprocess.Popen(
        command,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell makes the programs that it runs in the background ignore SIGINT, these tests among them.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def wait_for_lines(folder: Path, count: int) -> None:
    deadline = time.monotonic() + 120
    while sum(len(p.read_text().splitlines()) for p in folder.glob("results/*/smoke.jsonl")) < count:
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_an_interrupted_run_continues_where_it_stopped(
    harness: Run, tmp_path: Path, tiny_folder: Path, number: int
) -> None:
    run = start(tmp_path, tiny_folder)
    wait_for_lines(tmp_path, 1)
    time.sleep(0.3)  # until the middle of a measurement
    os.kill(run.pid, number)
    _, errors = run.communicate(timeout=60)
    if number == signal.SIGINT:
        assert run.returncode == 130
        assert "the same command goes on from there" in errors
        assert "Traceback" not in errors
    before = [encode(m) for m in rows(tmp_path)]
    assert len(before) >= 1
    done = harness("bench", "--dataset", tiny_folder, *QUICK)
    assert done.returncode == 0, done.stderr
    after = rows(tmp_path)
    assert [encode(m) for m in after[: len(before)]] == before
    assert len({(m.condition, m.again) for m in after}) == len(after) == 3


def test_records_of_another_processor_are_not_extended(
    finished: tuple[Path, str], harness: Run, tmp_path: Path, tiny_folder: Path
) -> None:
    folder, _ = finished
    (path,) = folder.glob("results/*/smoke.jsonl")
    other = tmp_path / "elsewhere" / path.name
    other.parent.mkdir()
    cpu = rows(folder)[0].provenance["cpu"]
    other.write_text(path.read_text().replace(json.dumps(cpu), '"Another 9000"'))
    before = other.read_bytes()
    done = harness("bench", "--dataset", tiny_folder, "--grid", "smoke", "--results", other.parent, "--repeat", "2")
    assert done.returncode == 2
    assert "was measured on Another 9000" in done.stderr
    assert other.read_bytes() == before


def test_a_second_run_at_the_same_time_is_refused(harness: Run, tmp_path: Path, tiny_folder: Path) -> None:
    run = start(tmp_path, tiny_folder)
    wait_for_lines(tmp_path, 1)
    second = harness("bench", "--dataset", tiny_folder, "--grid", "smoke")
    run.kill()
    run.communicate()
    assert second.returncode == 2
    assert "Another run is writing" in second.stderr


@pytest.mark.slow
def test_a_damaged_chunk_fails_the_rows_that_read_it(harness: Run, tmp_path: Path) -> None:
    from tests import tiny

    folder = tiny.write(tmp_path / "set")
    with h5py.File(folder / "part0.h5ad") as file:
        chunk = file["X/indices"].id.get_chunk_info(0)
    with (folder / "part0.h5ad").open("r+b") as file:
        file.seek(chunk.byte_offset + 30)
        file.write(b"\xff" * 30)
    done = harness("bench", "--dataset", folder, "--grid", "smoke", "--loaders", "native,stream,annloader")
    assert done.returncode == 0, done.stderr
    attempted = [m for m in rows(tmp_path) if m.status != "skipped"]
    assert len(attempted) == 9 - ("annloader" in ABSENT)  # the A/A pair is measured twice
    for m in attempted:
        assert m.status == "failed"
        assert "part0.h5ad" in m.reason
        assert "chunk 0" in m.reason
        assert "/X/indices" in m.reason
