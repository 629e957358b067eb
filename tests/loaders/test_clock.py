"""No loader imports a library while the clock runs: `imports` names all that opening and the first minibatch need."""

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

import loaders
from harness.data.dataset import Dataset
from harness.machine.host import ROOT
from harness.run import stores
from tests.conftest import skip_unless_available
from tests.loaders.test_contract import condition_of, declines, store

PROGRAM = """
import json, os, sys, warnings
from pathlib import Path
import loaders
from harness.condition import Condition
from harness.data.dataset import Dataset
from harness.run import worker

warnings.simplefilter("ignore")
dataset, path, condition = sys.argv[1:]
dataset, condition = Dataset.from_dict(json.loads(dataset)), Condition.from_dict(json.loads(condition))
adapter = loaders.get(condition.loader)
worker.import_libraries(adapter)
before = set(sys.modules)
loader = adapter.open(dataset, Path(path), condition, rows=False)
next(loader.epoch(0))
new = {name: sys.modules[name] for name in set(sys.modules) - before if "." not in name}
print(json.dumps(sorted(name for name, module in new.items() if "site-packages" in str(module.__spec__))), flush=True)
os._exit(0)  # in the middle of an epoch
"""


@pytest.fixture(scope="module", autouse=True)
def _stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stores, "STORES", tmp_path_factory.mktemp("stores"))
        yield


def case(name: str) -> object:
    """A pytest parameter, marked slow if the loader needs torch, whose import takes seconds."""
    return pytest.param(name, marks=[pytest.mark.slow] if "torch" in loaders.get(name).imports else [])


@pytest.mark.parametrize("name", [case(name) for name in loaders.NAMES])
def test_opening_and_the_first_minibatch_import_no_library(tiny_set: Dataset, name: str) -> None:
    skip_unless_available(name)
    condition = condition_of(name)
    if declines(tiny_set, condition):
        condition = condition_of(name, order="stream")
    if declines(tiny_set, condition):
        pytest.skip("it needs a bucket")
    arguments = [json.dumps(tiny_set.to_dict()), store(tiny_set, name), json.dumps(condition.to_dict())]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *map(str, arguments)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == []
