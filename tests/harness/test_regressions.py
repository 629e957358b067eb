"""Arguments for asv are checked and refused with one sentence; asv_proof.py checks the verdicts of asv."""

import subprocess
import sys

import pytest

from harness.machine.host import ROOT
from harness.suite import regressions


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("compare", "no-such-branch", "1.15"), "There is no commit no-such-branch"),
        (("compare", "HEAD", "1.15"), "there is nothing to compare"),
        (("compear",), "say one of compare, check, publish"),
        ((), "say one of compare, check, publish"),
    ],
)
def test_an_impossible_comparison_is_refused_with_one_sentence(arguments: tuple[str, ...], message: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "harness.suite.regressions", *arguments], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_asv_writes_below_its_folder_only() -> None:
    done = regressions.asv("machine", "--yes", kept=True)
    assert done.returncode == 0, done.stdout
    assert (regressions.FOLDER / ".asv-machine.json").exists()
    text = (ROOT / "asv.conf.json").read_text()
    assert all(f'"{name}": ".asv/' in text for name in ("env_dir", "results_dir", "html_dir"))
