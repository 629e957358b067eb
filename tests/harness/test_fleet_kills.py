"""A run with a killed producer is recorded, valid, and drawn; records that cannot be true are found."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from analysis.figures import kills as figure
from harness.commands.fleet_kills import publish
from harness.data.dataset import Dataset
from harness.machine.host import ROOT
from harness.records import jsonl, kills
from harness.records.kills import Kills
from harness.records.validate import of_kills, problems
from tests.conftest import skip_unless_available

FACTS = {"dataset_fingerprint": "f", "utc": "2026-01-01T00:00:00+00:00", "machine": "m"}
RUN = Kills(
    dataset="tiny", producers=2, ttfb_ms=30, connection_mbps=1, arrivals_s=[0.0, 10.0, 20.0, 30.0],
    cells=[100, 100, 100, 50], kills_s=[12.0], provenance=FACTS,
)  # fmt: skip
SHORT = """
import sys
from harness.experiments import fleet
fleet.FETCH = 4
fleet.SETTINGS |= {"batch_size": 16, "fetch_factor": 4}
fleet.PRODUCERS, fleet.SECONDS, fleet.KILLS_S = (2,), 3.0, (1.0,)
sys.exit(fleet.main())
"""


@pytest.mark.slow
def test_a_producer_is_killed_while_the_consumer_reads(tiny_set: Dataset, tiny_folder: Path, tmp_path: Path) -> None:
    skip_unless_available("native_fleet")
    command = [sys.executable, "-c", SHORT, str(tiny_folder), str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    (run,) = jsonl.read(tmp_path / kills.FILE, Kills)
    assert list(problems(tmp_path)) == []
    assert run.producers == 2
    assert len(run.kills_s) == 1
    assert run.arrivals_s[-1] > run.kills_s[0]
    assert set(run.cells) <= {64, 1009 % 64}
    names = {path.name for path in publish(tiny_set, tmp_path)}
    assert names == {f"{tiny_set.name}-fleet-kills.{suffix}" for suffix in ("png", "pdf", "csv")}


@pytest.mark.parametrize("arguments", [[], ["no-such-set"]])
def test_bad_input_is_one_sentence(arguments: list[str]) -> None:
    command = [sys.executable, "-m", "harness.experiments.fleet", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"producers": 0}, "no producers"),
        ({"cells": [100, 100, 100]}, "not every fetch has cells"),
        ({"arrivals_s": [0.0, 20.0, 10.0, 30.0]}, "did not arrive in order"),
        ({"kills_s": [31.0]}, "killed while nothing was read"),
    ],
)
def test_what_cannot_be_true_is_found(changed: dict, message: str) -> None:
    assert of_kills(RUN) == []
    assert message in " ".join(of_kills(replace(RUN, **changed)))


def test_a_rate_is_of_the_fetches_of_the_last_ten_seconds() -> None:
    rates = figure.rates_of(RUN).set_index("seconds")["cells_per_s"]
    assert rates[10.0] == rates[20.0] == pytest.approx(10)  # one fetch of 100 cells, at the end of the window
    assert rates[19.5] == pytest.approx(10)
    assert rates[30.0] == pytest.approx(5)
