"""A store is prepared once and looks finished only when it is. The tests kill real processes and fill a real disk."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

import loaders
from harness import __main__ as command
from harness.data.dataset import Dataset
from harness.records import jsonl
from harness.records.base import decode, encode
from harness.records.conversion import Conversion
from harness.run import stores
from tests.conftest import program

Use = Callable[[str], None]


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Use:
    """A function that registers a class of tests.toys, by name, as the loader `toy`. The working directory is empty."""
    monkeypatch.chdir(tmp_path)
    return lambda name: monkeypatch.setitem(loaders.NAMES, "toy", f"tests.toys:{name}")


def test_a_store_is_prepared_once_and_its_conversion_is_measured(toy: Use, tiny_set: Dataset) -> None:
    toy("Converting")
    progress: list[int] = []
    record = stores.prepare(tiny_set, "toy", progress.append)
    assert progress == [0, 504, 1009]
    (file,) = stores.store_files(tiny_set, "toy")
    assert file.read_text() == "1009"
    assert (record.status, record.store, record.provenance["store_bytes"]) == ("ok", "toy/1", 4)
    assert record.seconds > 0
    assert record.peak_rss_bytes > 10e6
    assert decode(Conversion, encode(record)) == record
    assert stores.prepare(tiny_set, "toy", progress.append) is None


def test_a_killed_conversion_leaves_its_reason_and_no_files(toy: Use, tiny_set: Dataset) -> None:
    toy("Dying")
    record = stores.prepare(tiny_set, "toy", lambda _: None)
    assert record.status == "failed"
    assert "killed" in record.reason
    assert not list(stores.STORES.rglob("half"))


def test_a_data_set_that_cannot_be_converted_is_skipped_with_the_reason(toy: Use, tiny_set: Dataset) -> None:
    toy("Refusing")
    record = stores.prepare(tiny_set, "toy", lambda _: None)
    assert (record.status, record.reason) == ("skipped", "toy cannot honour this condition: the toy converts nothing")
    assert not stores.store_path(tiny_set, "toy").exists()


def test_a_conversion_killed_half_way_does_not_look_finished(
    toy: Use, tiny_set: Dataset, tiny_folder: Path, tmp_path: Path
) -> None:
    toy("Converting")
    half = stores.store_path(tiny_set, "toy").with_name("toy-1.partial") / "half"
    code = (
        "import os, sys, loaders; from harness.data import catalogue;"
        "from harness.run.stores import prepare; os.chdir(sys.argv[2]);"
        "loaders.NAMES['toy'] = 'tests.toys:Endless';"
        "prepare(catalogue.load(sys.argv[1]), 'toy', print)"
    )
    preparing = program(code, tiny_folder, tmp_path)
    deadline = time.monotonic() + 60
    while not half.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    preparing.kill()
    preparing.wait()
    assert not stores.store_path(tiny_set, "toy").exists()
    assert stores.prepare(tiny_set, "toy", lambda _: None).status == "ok"
    assert [path.name for path in stores.store_files(tiny_set, "toy")] == ["cells"]


def test_nothing_is_prepared_for_a_loader_of_the_h5ad_files(toy: Use, tiny_set: Dataset, tmp_path: Path) -> None:
    assert stores.prepare(tiny_set, "native", lambda _: None) is None
    assert stores.store_files(tiny_set, "native") == list(tiny_set.paths)
    assert not list(tmp_path.iterdir())


def test_the_prepare_command_records_its_conversions(
    toy: Use, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loaders, "NAMES", {})
    toy("Converting")
    assert command.main(["prepare", str(tiny_folder)]) == 0
    assert command.main(["prepare", str(tiny_folder)]) == 0
    (path,) = Path("results").glob("*/conversions.jsonl")
    assert [record.store for record in jsonl.read(path, Conversion)] == ["toy/1"]


@pytest.mark.usefixtures("small_disk")
def test_a_full_disk_is_reported_in_one_sentence(
    toy: Use, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(loaders, "NAMES", {})
    toy("Filling")
    assert command.main(["prepare", str(tiny_folder)]) == 2
    error = capsys.readouterr().err
    assert error == "error: the disk of data is full; nothing that looks finished was left on it.\n"
    assert not [path for path in (tmp_path / "data").rglob("*") if path.is_file() and path.name != ".lock"]
