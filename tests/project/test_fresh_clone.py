"""In a fresh clone, without measurements of this machine, the report shows the committed records."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from harness.machine.host import ROOT

COMMITTED = "reference-2core-xeon"


def report(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "harness", "report"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def test_the_report_shows_the_committed_records_where_this_machine_has_none(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    done = report(tmp_path)
    assert (done.returncode, done.stderr[:33]) == (2, "error: There is no results folder")
    drawn = shutil.ignore_patterns("*.png")  # which are not committed, and may lie here
    shutil.copytree(ROOT / "results" / COMMITTED, tmp_path / "results" / COMMITTED, ignore=drawn)
    done = report(tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "results" / COMMITTED / "report.html").exists()
    assert f"not drawn here, and not on the page: make figures RESULTS=results/{COMMITTED}" in done.stdout
