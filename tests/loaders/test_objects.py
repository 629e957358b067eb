"""Adapters that read objects deliver the same cells from a bucket as from files."""

from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import loaders
from harness.bucket.process import BUCKET, environment, running
from harness.condition import Condition
from harness.data.dataset import Dataset
from tests import tiny
from tests.conftest import OF_RAY, skip_unless_available
from tests.loaders.test_contract import dense

# What is of Ray reads with the environment in which its cluster was started: test_fleet.py tests it.
OF_OBJECTS = [name for name in loaders.NAMES if getattr(loaders.get(name), "objects", False) and name not in OF_RAY]
SMALL = {"chunk_size": 16, "preload_nchunks": 4, "fetch_factor": 4, "io_batch_size": 128, "block_size": 8}


@pytest.mark.parametrize("name", OF_OBJECTS)
def test_the_cells_of_a_bucket(name: str, tiny_set: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    skip_unless_available(name)
    if find_spec("s3fs"):  # it keeps its connections, and so would ask the server of an earlier test
        import_module("s3fs").S3FileSystem.clear_instance_cache()
    adapter, store = loaders.get(name), tmp_path / "store"
    store.mkdir()
    for path in tiny_set.paths:
        (tmp_path / path.name).symlink_to(path)
    if hasattr(adapter, "prepare"):
        adapter.prepare(tiny_set, store, lambda cells: None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    knobs = tuple((knob, value) for knob, value in SMALL.items() if knob in adapter.knobs)
    condition = Condition(dataset="tiny", loader=name, batch_size=16, cache="first", ttfb_ms=0, knobs=knobs)
    with running(tiny_set.paths[0].parent if not hasattr(adapter, "prepare") else tmp_path) as server:
        for variable, value in environment(server.endpoint).items():
            monkeypatch.setenv(variable, value)
        served = replace(tiny_set, bucket=f"s3://{BUCKET}", served=server.folder)
        loader = adapter.open(served, store, condition, rows=True)
        try:
            batches = [(batch.rows, dense(batch.x)) for batch in loader.epoch(0)]
        finally:
            loader.close()
        requests = server.counters()["requests"]
    rows, x = (np.concatenate(parts) for parts in zip(*batches, strict=True))
    np.testing.assert_array_equal(x, tiny.truth()[rows])
    assert len(rows) == len(set(rows.tolist())) >= tiny.N - 1  # one loader leaves out the cell without counts
    assert requests["GET"] > 0
