"""A store is prepared once, and looks finished only when it is. Killed for real, on a disk that is really full."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import loaders
from harness import __main__ as command
from harness import prepare
from harness.dataset import Dataset
from tests import toys
from tests.conftest import program
from tests.test_bad_input import small_disk  # noqa: F401 - a fixture


@pytest.fixture(autouse=True)
def _toy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setitem(loaders.NAMES, "toy", "tests.toys:Converting")
    monkeypatch.chdir(tmp_path)
    return


def test_prepared_once(tiny_set: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[int] = []
    prepare.prepare(tiny_set, "toy", told.append)
    assert told == [504, 1009]
    (file,) = prepare.store_files(tiny_set, "toy")
    assert file.read_text() == "1009"
    monkeypatch.setattr(toys.Converting, "prepare", None)
    prepare.prepare(tiny_set, "toy", told.append)


KILLED = """
import os, signal, sys
import loaders
from harness import catalogue, prepare
loaders.NAMES["toy"] = "tests.toys:Converting"
dataset = catalogue.load(sys.argv[1])
os.chdir(sys.argv[2])
def die(done):
    (prepare.store_path(dataset, "toy").with_name("toy-1.partial") / "half").touch()
    os.kill(os.getpid(), signal.SIGKILL)
prepare.prepare(dataset, "toy", die)
"""


def test_killed_half_way(tiny_set: Dataset, tiny_folder: Path, tmp_path: Path) -> None:
    assert program(KILLED, tiny_folder, tmp_path).wait(60) == -signal.SIGKILL
    assert (prepare.store_path(tiny_set, "toy").with_name("toy-1.partial") / "half").exists()
    assert not prepare.store_path(tiny_set, "toy").exists()
    prepare.prepare(tiny_set, "toy", lambda _: None)
    assert [path.name for path in prepare.store_files(tiny_set, "toy")] == ["cells"]


def test_nothing_is_prepared_for_who_reads_the_files_as_they_are(tiny_set: Dataset, tmp_path: Path) -> None:
    prepare.prepare(tiny_set, "native", lambda _: None)
    assert prepare.store_files(tiny_set, "native") == list(tiny_set.paths)
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("small_disk")
def test_a_full_disk_is_a_sentence(
    tiny_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def fill(dataset: Dataset, path: Path, progress: object) -> None:
        with (path / "cells").open("wb") as file:
            for _ in range(30):
                file.write(bytes(1_000_000))

    monkeypatch.setattr(toys.Converting, "prepare", fill)
    assert command.main(["prepare", str(tiny_folder)]) == 2
    error = capsys.readouterr().err
    assert error == "error: the disk of data is full; nothing that looks finished was left on it.\n"
    assert not [path for path in (tmp_path / "data").rglob("*") if path.is_file()]
