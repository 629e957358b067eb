"""The program in the documentation runs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from harness.machine.host import ROOT
from tests.conftest import skip_unless_available

(PROGRAM,) = re.findall(r"```python\n(# train.py.*?)```", (ROOT / "docs" / "training.md").read_text(), re.DOTALL)


TORCHRUN = pytest.param(["-m", "torch.distributed.run", "--nproc-per-node", "2"], marks=pytest.mark.slow)


@pytest.mark.parametrize("launcher", [[], TORCHRUN])
def test_the_linear_model_trains(tiny_folder: Path, tmp_path: Path, launcher: list[str]) -> None:
    skip_unless_available("scdataset")  # torch
    (tmp_path / "train.py").write_text(PROGRAM)
    command = [sys.executable, *launcher, str(tmp_path / "train.py"), str(tiny_folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert len(re.findall(r"epoch 1: loss [\d.]+", done.stdout)) == (2 if launcher else 1)


def test_the_linear_model_is_short() -> None:
    code = [line for line in PROGRAM.splitlines() if line.strip() and not line.startswith(("#", "import", "from"))]
    assert len(code) <= 30
