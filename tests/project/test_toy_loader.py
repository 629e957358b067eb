"""A new loader takes one file and one line: contract tests, rows and figures then include it."""

import csv
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harness.machine.host import ROOT
from harness.records import jsonl
from tests.conftest import skip_unless_available

TOY = '''"""A loader for a new library."""

from loaders.reference import Reference


class Toy(Reference):
    name = "toy"
    in_memory = False
'''


MEASURED = "toy,stream,native,memmap,scdataset"  # the figure needs at least five loaders


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of this checkout with the toy loader and with short time windows."""
    folder = tmp_path_factory.mktemp("checkout")
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in tracked.split("\n"):
        if name and not name.startswith("results/reference") and (ROOT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    (folder / "loaders/toy.py").write_text(TOY)
    names, grids = folder / "loaders/__init__.py", folder / "harness/grids.toml"
    names.write_text(names.read_text().replace("NAMES = {\n", 'NAMES = {\n    "toy": "loaders.toy:Toy",\n'))
    grids.write_text(re.sub(r"warmup_s = 1, measure_s = 4,", "warmup_s = 0.1, measure_s = 0.2,", grids.read_text()))
    return folder


def run(checkout: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", *map(str, arguments)]
    return subprocess.run(command, cwd=checkout, capture_output=True, text=True, timeout=600)


@pytest.mark.slow
def test_the_contract_tests_include_a_new_loader(checkout: Path) -> None:
    done = run(checkout, "pytest", "tests/loaders/test_contract.py", "-k", "toy", "-p", "no:cacheprovider")
    assert done.returncode == 0, done.stdout[-3000:]
    (passed,) = re.findall(r"(\d+) passed", done.stdout)
    assert int(passed) >= 8


@pytest.mark.slow
def test_a_new_loader_delivers_tokens(checkout: Path) -> None:
    """Its adapter knows nothing of them."""
    selected = "toy and tokens_are_those_of_the_cells"
    done = run(checkout, "pytest", "tests/loaders/test_contract.py", "-k", selected, "-p", "no:cacheprovider")
    assert done.returncode == 0, done.stdout[-3000:]
    assert re.findall(r"(\d+) passed", done.stdout) == ["2"]


@pytest.mark.slow
def test_a_new_loader_is_measured_and_drawn(checkout: Path, tiny_folder: Path) -> None:
    skip_unless_available("scdataset")
    done = run(checkout, "harness", "bench", "--dataset", tiny_folder, "--grid", "loaders", "--loaders", MEASURED)
    assert done.returncode == 0, done.stderr
    (records,) = checkout.glob("results/*/loaders.jsonl")
    measured = [m for m in jsonl.read(records) if m.condition.loader == "toy" and not m.again]
    assert [m.status for m in measured] == ["ok"] * 4
    assert {(m.condition.order, m.condition.output) for m in measured} == {
        (order, output) for order in ("random", "stream") for output in ("csr", "dense")
    }
    (figure,) = checkout.glob("results/*/figures/*-loaders-loaders.csv")
    with figure.open() as file:
        assert "toy" in {row["loader"] for row in csv.DictReader(file)}
