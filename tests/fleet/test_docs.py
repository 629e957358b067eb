"""The programs in docs/scale-out.md run as they stand there."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from harness.machine.host import ROOT
from tests.fleet.test_up import fresh_environment, up

PAGE = (ROOT / "docs" / "scale-out.md").read_text()
(PROGRAM,) = re.findall(r"```python\n(# train.py.*?)```", PAGE, re.DOTALL)
ONE_MACHINE, CLUSTER = re.findall(r"```sh\n(.*?)```", PAGE.partition("## Measured")[0], re.DOTALL)


def command(lines: str, name: str) -> list[str]:
    """The arguments of the command `name` among some lines of a shell."""
    (found,) = re.findall(rf"^.*\b{name} (.*?)(?:#.*)?$", lines, re.MULTILINE)
    return shlex.split(found)


def train(folder: Path, program: Path, address: str, arguments: list[str]) -> None:
    names = {"train.py": str(program), "FOLDER": str(folder)}
    line = [sys.executable, "-m", "torch.distributed.run", *(names.get(each, each) for each in arguments)]
    environment = fresh_environment(address) | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(line, cwd=program.parent, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert len(re.findall(r"epoch 1: loss [\d.]+", done.stdout)) == 2


@pytest.fixture
def program(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(PROGRAM)
    return tmp_path / "train.py"


@pytest.mark.slow
def test_the_program_for_one_machine(tiny_folder: Path, program: Path) -> None:
    with up(*command(ONE_MACHINE, "up"), "--memory", "0.2") as address:
        train(tiny_folder, program, address, command(ONE_MACHINE, "torchrun"))


@pytest.mark.slow
def test_the_program_for_a_cluster(tiny_folder: Path, program: Path, ray_cluster: str) -> None:
    arguments = [ray_cluster if each == "HEAD:6379" else each for each in command(CLUSTER, "up")]
    with up(*arguments) as address:
        assert address == ray_cluster
        train(tiny_folder, program, address, command(CLUSTER, "torchrun"))


def test_the_program_is_short() -> None:
    assert len(PROGRAM.splitlines()) <= 40
