"""`mosaic` with several shards; in the contract tests the tiny set fits into one."""

import json
import signal
from pathlib import Path

import numpy as np
import pytest

from harness.condition import Condition
from harness.data.dataset import Dataset
from loaders import mosaic
from loaders.mosaic import Mosaic
from loaders.protocol import Incompatible
from tests import tiny
from tests.conftest import program, skip_unless_available

CONDITION = Condition(dataset="tiny", loader="mosaic", batch_size=16)
pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")  # torch forks its workers
PROGRAM = """
import sys, time
from pathlib import Path
from harness.condition import Condition
from harness.data import catalogue
from loaders.mosaic import Mosaic

condition = Condition(dataset="tiny", loader="mosaic", batch_size=16)
loader = Mosaic.open(catalogue.load(sys.argv[1]), Path(sys.argv[2]), condition, rows=True)
batches = loader.epoch(0)
next(batches)
print("reading", flush=True)
time.sleep(600)
"""


@pytest.fixture
def store(tiny_set: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    skip_unless_available("mosaic")
    monkeypatch.setattr(mosaic, "SHARD_BYTES", 10_000)
    folder = tmp_path / "mds-1"
    folder.mkdir()
    Mosaic.prepare(tiny_set, folder, lambda cells: None)
    assert len(list(folder.glob("*.mds.zstd"))) > 4
    return folder


@pytest.mark.parametrize(("order", "workers"), [("random", 0), ("random", 2), ("stream", 0)])
def test_cells_of_several_shards(tiny_set: Dataset, store: Path, order: str, workers: int) -> None:
    condition = Condition(dataset="tiny", loader="mosaic", batch_size=16, order=order, workers=workers)
    stored = sorted(store.iterdir())
    loader = Mosaic.open(tiny_set, store, condition, rows=True)
    batches = list(loader.epoch(0))
    loader.close()
    rows = np.concatenate([batch.rows for batch in batches])
    np.testing.assert_array_equal(np.concatenate([batch.x.toarray() for batch in batches]), tiny.truth()[rows])
    assert sorted(rows.tolist()) == list(range(tiny.N))
    if order == "stream":
        assert rows.tolist() == list(range(tiny.N))
    assert sorted(store.iterdir()) == stored
    assert list(store.parent.glob("mds-1.copy-*")) == []


def test_a_smaller_block_moves_cells_less(tiny_set: Dataset, store: Path) -> None:
    moved = []
    for block in (4_000_000, 256):
        condition = Condition(dataset="tiny", loader="mosaic", batch_size=16, knobs=(("shuffle_block_size", block),))
        loader = Mosaic.open(tiny_set, store, condition, rows=True)
        rows = np.concatenate([batch.rows for batch in loader.epoch(0)])
        loader.close()
        shard = np.searchsorted(np.cumsum(cells_by_shard(store)), rows, side="right")
        moved.append(np.mean([len(set(shard[i : i + 16])) for i in range(0, len(shard), 16)]))
    assert moved[1] < moved[0]


def cells_by_shard(store: Path) -> list[int]:
    """The number of cells in each shard."""
    return [shard["samples"] for shard in json.loads((store / "index.json").read_text())["shards"]]


def test_it_opens_again_after_it_was_dropped_in_an_epoch_or_killed(tiny_set: Dataset, store: Path) -> None:
    for _ in range(2):
        loader = Mosaic.open(tiny_set, store, CONDITION, rows=True)
        batches = loader.epoch(0)
        next(batches)
        batches.close()
        loader.close()
    killed = program(PROGRAM, tiny_set.paths[0].parent, store)
    assert killed.stdout.readline() == "reading\n"
    assert len(list(store.parent.glob("mds-1.copy-*"))) == 1
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    loader = Mosaic.open(tiny_set, store, CONDITION, rows=True)
    assert sum(len(batch.rows) for batch in loader.epoch(0)) == tiny.N
    loader.close()
    assert list(store.parent.glob("mds-1.copy-*")) == []


def test_several_processes_are_refused(tiny_set: Dataset, store: Path) -> None:
    condition = Condition(dataset="tiny", loader="mosaic", batch_size=16, processes=2)
    with pytest.raises(Incompatible, match="shared memory"):
        Mosaic.open(tiny_set, store, condition, rows=True)
