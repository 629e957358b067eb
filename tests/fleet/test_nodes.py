"""A node of a cluster is lost, with its producers and the fetches that lay there."""

import subprocess
import sys
from pathlib import Path

import pytest

from harness.machine.host import ROOT
from tests.tiny import N


@pytest.mark.slow
def test_every_cell_comes_once_if_a_node_is_removed(tiny_folder: Path) -> None:
    command = [sys.executable, "-m", "tests.fleet.nodes", str(tiny_folder), str(N)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()  # among those of Ray, about the node that is lost
    assert "producers 2" in lines
    assert "the same cells True" in lines
