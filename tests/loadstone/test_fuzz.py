"""A short run of the fuzzer on our reader; and the fuzzer finds planted defects."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from harness.machine import host
from tests.conftest import skip_unless_available
from tests.fuzz import counts, verdict
from tests.fuzz.stores import forms
from tests.fuzz.toys import PLANTED


def fuzz(folder: Path, *options: object) -> tuple[subprocess.CompletedProcess[str], dict[str, dict[str, int]]]:
    """Runs the fuzzer. Returns (the finished process; the number of cases by storage form and verdict)."""
    outputs = ["--keep", folder / "kept", "--json", folder / "counts.json", "--processes", 1]
    command = [sys.executable, "-m", "tests.fuzz", *map(str, [*options, *outputs])]
    finished = subprocess.run(command, cwd=host.ROOT, capture_output=True, text=True, timeout=600)
    assert (folder / "counts.json").exists(), finished.stdout + finished.stderr
    return finished, json.loads((folder / "counts.json").read_text())


def skip_unless_all_forms_can_be_read() -> None:
    pytest.importorskip("hdf5plugin")
    for name in ("native_zarr", "native_arrow", "native_bionemo"):
        skip_unless_available(name)


def test_damaged_stores_are_refused_or_read_as_their_own_library_does(tmp_path: Path) -> None:
    """A case or two of each storage form, always the same ones; `make fuzz` runs others for as long as one likes."""
    skip_unless_all_forms_can_be_read()
    finished, by_form = fuzz(tmp_path, "--minutes", 5, "--cases", 24, "--seed", 0)
    assert finished.returncode == 0, finished.stdout
    assert sum(sum(verdicts.values()) for verdicts in by_form.values()) == 24, finished.stdout
    verdicts = set().union(*by_form.values())
    assert verdicts <= set(verdict.GOOD)
    assert {"equal", "refused"} <= verdicts


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, dict[str, dict[str, int]]]:
    """The results of a fuzzer run on undamaged stores, with a reader that has a different defect for each form."""
    skip_unless_all_forms_can_be_read()
    folder = tmp_path_factory.mktemp("planted")
    options = ("--reader", "tests.fuzz.toys:open_planted", "--forms", ",".join(PLANTED), "--limit", 8)
    finished, by_form = fuzz(folder, *options, "--undamaged", "--seed", 0, "--cases", len(forms()))
    assert finished.returncode == 1, finished.stdout + finished.stderr
    return folder, finished.stdout, by_form


@pytest.mark.parametrize("form", PLANTED)
def test_a_planted_defect_is_found(planted: tuple[Path, str, dict[str, dict[str, int]]], form: str) -> None:
    assert planted[2][form] == {PLANTED[form][1]: 1}


def test_a_failure_is_kept_and_can_be_reproduced(planted: tuple[Path, str, dict[str, dict[str, int]]]) -> None:
    (folder,) = (planted[0] / "kept").glob("*-crash")
    described = json.loads((folder / "case.json").read_text())
    assert described["reproduce"] == f"python -m tests.fuzz reproduce {folder}"
    assert "toys.py" in (folder / "stack.txt").read_text()
    assert str(folder) in planted[1]
    command = [sys.executable, *described["reproduce"].split()[1:]]
    finished = subprocess.run(command, cwd=host.ROOT, capture_output=True, text=True, timeout=300)
    assert finished.returncode == 1, finished.stderr
    assert "now  crash: SIGSEGV in phase read" in finished.stdout


def stage(ended: str | None = None, stack: str = "", **messages: object):
    from tests.fuzz.zygote import StageResult

    return StageResult(messages, ended, stack)


REFUSED = {"reference": "refuses", "why": "damaged"}
ERROR = {"ours": "error", "error": "OSError", "message": "a.h5ad is damaged", "faults": [], "trace": [], "left": []}
DIFFERS = {"reference": "reads", "equal_reference": False, "differing_reference": []}
ROWS = {"ours": "rows", "left": [], "differing": [], "equal_truth": False}


@pytest.mark.parametrize(
    ("read", "compared", "expected"),
    [
        (stage("SIGSEGV", phase="open"), stage("SIGSEGV"), "library died"),
        (stage("SIGSEGV", phase="open"), stage(**REFUSED), "crash"),
        (stage("SIGSEGV", phase="read"), stage("SIGSEGV"), "crash"),
        (stage("SIGSEGV", "site-packages/h5py/a.py", phase="read"), stage("SIGSEGV"), "library died"),
        (stage("hang", phase="read"), stage(**REFUSED), "hang"),
        (stage(**ERROR), stage(**REFUSED), "refused"),
        (stage(**ERROR), stage("SIGABRT"), "refused"),
        (stage(**ERROR), stage(reference="reads"), "refused, readable"),
        (stage(**ERROR | {"faults": ["it names no file"]}), stage(**REFUSED), "riddle"),
        (stage(**ERROR | {"left": ["decode_0"]}), stage(**REFUSED), "left open"),
        (stage(**ROWS | {"equal_truth": True}), stage(**REFUSED), "equal"),
        (stage(**ROWS | {"equal_truth": True}), stage("SIGSEGV"), "reference died"),
        (stage(**ROWS), stage(**REFUSED), "silent"),
        (stage(**ROWS), stage("SIGSEGV"), "silent"),
        (stage(**ROWS), stage(reference="reads", equal_reference=True), "equal"),
        (stage(**ROWS | {"equal_truth": True}), stage(**DIFFERS), "differs"),
    ],
)
def test_verdicts(read: object, compared: object, expected: str) -> None:
    assert verdict.of(stage(), read, compared, damaged=True)[0] == expected


def test_rows_with_different_counts_are_found() -> None:
    rows, genes = np.array([0, 0, 2]), np.array([3, 3, 1])
    a = counts.counts(3, 5, rows, genes, np.array([1, 2, 4], np.float32))
    assert counts.differing(a, counts.counts(3, 5, rows[1:], genes[1:], np.array([3, 4], np.float32))) == set()
    assert counts.differing(a, counts.counts(3, 5, rows[1:], genes[1:], np.array([3, 5], np.float32))) == {2}
    assert counts.differing(a, counts.counts(3, 5, rows[1:], genes[1:] + 1, np.array([3, 4], np.float32))) == {0, 2}
    assert counts.differing(a, counts.counts(4, 5, rows[1:], genes[1:], np.array([3, 4], np.float32))) is None


def test_a_case_is_a_function_of_seed_and_number() -> None:
    skip_unless_all_forms_can_be_read()
    from tests.fuzz.case import Plan

    plans = [[Plan.of(7, number) for number in range(200)] for _ in range(2)]
    assert plans[0] == plans[1]
    assert len({plan.form for plan in plans[0]}) == len(forms())
