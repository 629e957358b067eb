"""`doctor` reports loaders that are available, not installed or broken."""

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


@pytest.mark.slow
def test_the_json_report_lists_every_loader(harness: Run) -> None:
    done = harness("doctor", "--json")
    report = json.loads(done.stdout)
    assert [row["name"] for row in report["loaders"]] == list(loaders.NAMES)
    for row in report["loaders"]:
        missing = loaders.unavailable(row["name"])
        assert (row["status"], row["reason"]) == ("not installed" if missing else "available", missing)
        assert bool(row["version"]) == (missing is None)
    assert done.returncode == 0
    assert report["decoders"]["gzip"] == "compiled loop"
    assert report["page_cache"] in ("drop_caches", "fadvise", None)
    assert list(report["limits"]) == ["bounded memory", "disk hdd", "disk gp3", "disk nvme"]


def test_the_text_report_lists_every_loader(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With only the loaders that are quick to import; the JSON test imports the others."""
    names = {name: target for name, target in loaders.NAMES.items() if name in ("memmap", "native")}
    monkeypatch.setattr(loaders, "NAMES", names)
    assert main(["doctor"]) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in names)
    assert "page cache:" in printed
    assert "disk hdd: " in printed
    assert "native, gzip: compiled loop" in printed


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The path of the module that the only loader, `toy`, needs. The test creates the file."""
    monkeypatch.setattr(loaders, "NAMES", {"toy": "tests.toys:Toy"})
    monkeypatch.setattr(toys.Toy, "imports", ("a_library_for_doctor",))
    monkeypatch.setattr(doctor, "version", lambda name, modules: "1.0")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path / "a_library_for_doctor.py"


def test_an_installed_loader_that_does_not_import_is_broken(library: Path) -> None:
    library.write_text("raise OSError('libcuda cannot be loaded')")
    (row,) = doctor.examine()["loaders"]
    assert (row["status"], row["reason"]) == ("broken", "OSError: libcuda cannot be loaded")
    assert main(["doctor"]) == 1
    library.write_text("")
    assert doctor.examine()["loaders"][0]["status"] == "available"
    assert main(["doctor"]) == 0


def test_a_loader_without_its_library_is_reported_as_not_installed(library: Path) -> None:
    (row,) = doctor.examine()["loaders"]
    assert row["status"] == "not installed"
    assert "EXTRAS=toy make setup" in row["reason"]
