"""The Python that runs a loader, and the tests of the loaders that have their own environment."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import loaders
from harness.commands import doctor
from harness.data.dataset import Dataset
from harness.machine import interpreter
from harness.run.job import Job
from harness.run.process import spawn
from harness.run.provenance import provenance
from tests import toys

SEPARATE = [name for name in loaders.NAMES if interpreter.own(name)]

REPORTING = """#!/bin/sh
printf '{"python": "3.12.99", "packages": {"acme-ml": "7.1"}, "missing": [%s],' "$MISSING"
printf '"owners": {"acme": ["acme-ml"]}}'
"""
"""A stand-in for the Python of another environment: prints the same report whatever its arguments."""


@pytest.mark.slow
@pytest.mark.parametrize("name", SEPARATE)
def test_a_loader_passes_its_tests_in_its_own_environment(name: str) -> None:
    """Runs the contract tests, those over a bucket, and the test file of this loader if it has one.

    With REQUIRE a skipped test fails.
    """
    files = [
        *("tests/loaders/test_contract.py", "tests/loaders/test_objects.py"),
        *([alone] if Path(alone := f"tests/loaders/test_{name}.py").exists() else []),
    ]
    command = [interpreter.interpreter(name), "-m", "pytest", "-k", name, *files]
    done = subprocess.run(
        command, cwd=interpreter.ROOT, env=os.environ | {"REQUIRE": name}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout  # 5 where no test was collected


@pytest.fixture
def own_python(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The Python interpreter of the environment of loader `toy`; it is a shell script that stands in for Python."""
    monkeypatch.setattr(interpreter, "ROOT", tmp_path)
    monkeypatch.setattr(loaders, "NAMES", {"toy": "tests.toys:Toy"})
    monkeypatch.setattr(toys.Toy, "imports", ("acme",))
    monkeypatch.setenv("MISSING", "")
    interpreter._ask.cache_clear()
    script = tmp_path / ".venvs" / "toy" / "bin" / "python"
    script.parent.mkdir(parents=True)
    script.write_text(REPORTING)
    script.chmod(0o755)
    return script


def test_versions_and_imports_are_those_of_its_own_environment(own_python: Path, tiny_set: Dataset) -> None:
    assert loaders.unavailable("toy") is None
    report = doctor.examine_loader("toy")
    assert (report["status"], report["version"], report["environment"]) == ("available", "7.1", ".venvs/toy")
    facts = provenance("toy", tiny_set)
    assert (facts["python"], facts["packages"]) == ("3.12.99", {"acme-ml": "7.1"})


def test_a_library_missing_in_its_environment_is_not_installed(
    own_python: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MISSING", '"acme"')
    assert loaders.unavailable("toy") == "acme not installed: EXTRAS=toy make setup"


def test_its_own_python_runs_the_worker(own_python: Path, tiny_set: Dataset) -> None:
    own_python.write_text(
        """#!/bin/sh\nprintf '{"outcome": {"status": "ok", "reason": "%s", "errno": null, "answer": null}}\\n' "$0"\n"""
    )
    job = Job(task="convert", loader="toy", adapter="tests.toys:Toy", dataset=tiny_set, store=own_python)
    outcome = spawn(job, None, 60, lambda phase, cells, seconds: None)
    assert (outcome.status, outcome.reason) == ("ok", str(own_python))
    assert interpreter.interpreter("another") == sys.executable


def test_the_report_needs_no_installed_package() -> None:
    done = subprocess.run(
        [sys.executable, "-S", "-m", "harness.machine.interpreter", "json", "acme.ml"],
        cwd=interpreter.ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout)["missing"] == ["acme.ml"]
