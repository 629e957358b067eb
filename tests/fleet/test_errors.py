"""What goes wrong is said in one sentence, where the user sees it."""

import subprocess
import sys
from functools import partial
from pathlib import Path

import h5py
import pytest

from harness.machine.host import ROOT
from loadstone import open_h5ad
from loadstone.fleet import FleetDataset, __main__
from loadstone.torch import BlockDataset
from tests import tiny
from tests.fleet.conftest import CONSUMER, SETTINGS


def raised_by(dataset: object) -> BaseException:
    with pytest.raises((OSError, ValueError)) as caught:
        list(dataset)
    return caught.value


@pytest.fixture
def damaged(tmp_path: Path) -> list[Path]:
    """The files of the tiny set, one of which has a damaged chunk."""
    paths = sorted(tiny.write(tmp_path / "tiny").glob("*.h5ad"))
    with h5py.File(paths[3]) as file:
        place = file["X/data"].id.get_chunk_info(0).byte_offset
    with paths[3].open("r+b") as file:
        file.seek(place + 20)
        file.write(b"\xff" * 20)
    return paths


def test_the_error_of_a_damaged_file_is_the_local_one(producers, damaged: list[Path]) -> None:
    producers(1)
    opened = partial(open_h5ad, damaged, threads=1)
    local, remote = raised_by(BlockDataset(opened, **SETTINGS)), raised_by(FleetDataset(opened, **SETTINGS))
    assert (type(remote), str(remote)) == (type(local), str(local))
    assert damaged[3].name in str(remote)


def test_the_error_of_a_missing_file_is_the_local_one(producers) -> None:
    producers(1)
    opened = partial(open_h5ad, ["missing.h5ad"])
    local, remote = raised_by(BlockDataset(opened)), raised_by(FleetDataset(opened))
    assert (type(remote), str(remote)) == (type(local), str(local))


def test_arguments_are_checked(producers, fleet) -> None:
    producers(1)
    for arguments, message in [
        ({"labels": {"drug": [1, 2]}}, "labels 'drug' has 2 codes, but the source has 1,009 rows"),
        ({"batch_size": 0}, "batch_size"),
        ({"fetch_factor": 1_000_000}, "half of the object store"),
        ({"ahead": 100_000}, "half of the object store"),
    ]:
        with pytest.raises(ValueError, match=message):
            len(fleet(**arguments))
    for arguments, message in [
        ({"rank": 2, "ranks": 2}, "rank 2 is not one of 2"),
        ({"workers": 2}, "leave out workers"),
        ({"ahead": 0}, "ahead"),
    ]:
        with pytest.raises(ValueError, match=message):
            fleet(**arguments)


def test_worker_processes_are_refused(fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loadstone.fleet.dataset.get_worker_info", object)
    with pytest.raises(ValueError, match="has no worker processes"):
        next(iter(fleet()))


def test_a_cluster_without_producers_is_said(producers, fleet) -> None:
    with pytest.raises(
        ConnectionError, match=r"the cluster has had no producers for 0 s: .*up --producers 4 --address"
    ):
        len(fleet(wait_s=0.2))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "required: verb"),
        (["up"], "required: --producers"),
        (["up", "--producers", "0"], "0 is not above 0"),
        (["up", "--producers", "many"], "invalid number value: 'many'"),
        (["up", "--producers", "1", "--memory", "nan"], "nan is not above 0"),
    ],
)
def test_a_wrong_argument_is_answered_in_one_line(arguments: list[str], message: str, capsys) -> None:
    with pytest.raises(SystemExit, match="2"):
        __main__.main(arguments)
    is_one_line(capsys.readouterr().err, message)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--memory", "0.01"], "object store"),
        (["--address", "127.0.0.1:1"], "no Ray cluster was found at 127.0.0.1:1"),
        (["--address", "somewhere"], "HOST:PORT or auto, not somewhere"),
    ],
)
def test_what_prevents_a_start_is_said_in_one_line(arguments: list[str], message: str) -> None:
    command = [sys.executable, "-m", "loadstone.fleet", "up", "--producers", "1", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    is_one_line(done.stderr, message)


def is_one_line(text: str, message: str) -> None:
    assert text.startswith("error: ")
    assert message in text
    assert text.count("\n") == 1


def fails(code: str, *arguments: object) -> str:
    """The last line that a program writes to standard error, which must fail."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    return done.stderr.splitlines()[-1]


def test_a_missing_cluster_is_said(tiny_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    last = fails(CONSUMER + "len(dataset)", tiny_folder)
    assert last.startswith("ConnectionError: no Ray cluster was found at 127.0.0.1:1: start producers with `python -m")


def test_a_missing_ray_is_said(tiny_folder: Path) -> None:
    last = fails("import sys; sys.modules['ray'] = None\n" + CONSUMER + "len(dataset)", tiny_folder)
    assert last == "ImportError: a fleet runs on Ray: pip install 'loadstone[fleet]'"


def test_help_names_both_forms(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        __main__.main(["--help"])
    assert "--address HOST:PORT" in capsys.readouterr().out
