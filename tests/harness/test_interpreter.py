"""Which Python runs a loader, and the tests of the loaders that run in another one."""

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

APART = [name for name in loaders.NAMES if interpreter.own(name)]

TELLS = """#!/bin/sh
printf '{"python": "3.12.99", "packages": {"acme-ml": "7.1"}, "missing": [%s],' "$MISSING"
printf '"owners": {"acme": ["acme-ml"]}}'
"""
"""A Python that says what another environment has, whatever it is asked."""


@pytest.mark.slow
@pytest.mark.parametrize("name", APART)
def test_its_own_python_tests_it(name: str) -> None:
    """The contract, and what tests there are of this loader alone; with REQUIRE a skipped test is a failed one."""
    files = ["tests/loaders/test_contract.py", *([alone] if Path(alone := f"tests/test_{name}.py").exists() else [])]
    command = [interpreter.interpreter(name), "-m", "pytest", "-k", name, *files]
    done = subprocess.run(
        command, cwd=interpreter.ROOT, env=os.environ | {"REQUIRE": name}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout  # 5 where nothing was collected


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A loader with an environment of its own, whose Python is a script."""
    monkeypatch.setattr(interpreter, "ROOT", tmp_path)
    monkeypatch.setattr(loaders, "NAMES", {"toy": "tests.toys:Toy"})
    monkeypatch.setattr(toys.Toy, "imports", ("acme",))
    monkeypatch.setenv("MISSING", "")
    interpreter._ask.cache_clear()
    python = tmp_path / ".venvs" / "toy" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(TELLS)
    python.chmod(0o755)
    return python


def test_it_is_asked_for_versions_and_imports(apart: Path, tiny_set: Dataset) -> None:
    assert loaders.unavailable("toy") is None
    told = doctor.examine_loader("toy")
    assert (told["status"], told["version"], told["environment"]) == ("available", "7.1", ".venvs/toy")
    facts = provenance("toy", tiny_set)
    assert (facts["python"], facts["packages"]) == ("3.12.99", {"acme-ml": "7.1"})


def test_what_it_lacks_is_not_installed(apart: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MISSING", '"acme"')
    assert loaders.unavailable("toy") == "acme not installed: EXTRAS=toy make setup"


def test_it_runs_the_worker(apart: Path, tiny_set: Dataset) -> None:
    apart.write_text(
        """#!/bin/sh\nprintf '{"outcome": {"status": "ok", "reason": "%s", "errno": null, "answer": null}}\\n' "$0"\n"""
    )
    job = Job(task="convert", loader="toy", adapter="tests.toys:Toy", dataset=tiny_set, store=apart)
    outcome = spawn(job, None, 60, lambda phase, cells, seconds: None)
    assert (outcome.status, outcome.reason) == ("ok", str(apart))
    assert interpreter.interpreter("another") == sys.executable


def test_another_python_tells_without_any_package() -> None:
    told = subprocess.run(
        [sys.executable, "-S", "-m", "harness.machine.interpreter", "json", "acme.ml"],
        cwd=interpreter.ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(told.stdout)["missing"] == ["acme.ml"]
