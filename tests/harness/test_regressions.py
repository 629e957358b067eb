"""What asv is asked to compare is there, and told in a sentence where it is not. Its verdicts: asv_proof.py."""

import subprocess
import sys

import pytest

from harness.machine.host import ROOT
from harness.suite import regressions


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("compare", "no-such-branch", "1.15"), "There is no commit no-such-branch"),
        (("compare", "HEAD", "1.15"), "there is nothing to compare"),
        (("compear",), "say one of compare, check, publish"),
        ((), "say one of compare, check, publish"),
    ],
)
def test_what_cannot_be_compared_is_said(arguments: tuple[str, ...], said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "harness.suite.regressions", *arguments], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_all_that_asv_writes_is_below_its_folder() -> None:
    done = regressions.asv("machine", "--yes", kept=True)
    assert done.returncode == 0, done.stdout
    assert (regressions.FOLDER / ".asv-machine.json").exists()
    text = (ROOT / "asv.conf.json").read_text()
    assert all(f'"{name}": ".asv/' in text for name in ("env_dir", "results_dir", "html_dir"))
