"""What `doctor` says of loaders that are there, absent and broken."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import loaders
from harness.__main__ import main
from harness.commands import doctor
from tests import toys

Run = Callable[..., subprocess.CompletedProcess[str]]


def test_as_json_it_names_every_loader(harness: Run) -> None:
    told = harness("doctor", "--json")
    found = json.loads(told.stdout)
    assert [row["name"] for row in found["loaders"]] == list(loaders.NAMES)
    for row in found["loaders"]:
        missing = loaders.unavailable(row["name"])
        assert (row["status"], row["reason"]) == ("not installed" if missing else "available", missing)
        assert bool(row["version"]) == (missing is None)
    assert told.returncode == 0
    assert found["decoders"]["gzip"] == "compiled loop"
    assert found["page_cache"] in ("drop_caches", "fadvise", None)


def test_as_text_too(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Of loaders that are quick to import; the others are imported above."""
    names = {name: where for name, where in loaders.NAMES.items() if name in ("memmap", "native")}
    monkeypatch.setattr(loaders, "NAMES", names)
    assert main(["doctor"]) == 0
    told = capsys.readouterr().out
    assert all(name in told for name in names)
    assert "page cache:" in told
    assert "native, gzip: compiled loop" in told


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A loader whose library is a file to be filled."""
    monkeypatch.setattr(loaders, "NAMES", {"toy": "tests.toys:Toy"})
    monkeypatch.setattr(toys.Toy, "imports", ("a_library_for_doctor",))
    monkeypatch.setattr(doctor, "version", lambda name, modules: "1.0")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path / "a_library_for_doctor.py"


def test_an_installed_loader_that_does_not_import_is_broken(library: Path) -> None:
    library.write_text("raise OSError('libcuda is not what it was')")
    (row,) = doctor.examine()["loaders"]
    assert (row["status"], row["reason"]) == ("broken", "OSError: libcuda is not what it was")
    assert main(["doctor"]) == 1
    library.write_text("")
    assert doctor.examine()["loaders"][0]["status"] == "available"
    assert main(["doctor"]) == 0


def test_an_absent_one_is_no_failure(library: Path) -> None:
    (row,) = doctor.examine()["loaders"]
    assert row["status"] == "not installed"
    assert "EXTRAS=toy make setup" in row["reason"]
