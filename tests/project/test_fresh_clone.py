"""Where nothing was measured yet, the committed records are drawn."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from harness.machine.host import ROOT

COMMITTED = "reference-2core-read-ahead-128k"


def report(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "harness", "report"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def test_the_committed_records_are_drawn_where_this_machine_has_none(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    told = report(tmp_path)
    assert (told.returncode, told.stderr[:33]) == (2, "error: There is no results folder")
    shutil.copytree(ROOT / "results" / COMMITTED, tmp_path / "results" / COMMITTED)
    told = report(tmp_path)
    assert told.returncode == 0, told.stderr
    assert (tmp_path / "results" / COMMITTED / "report.html").exists()
