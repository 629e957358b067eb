"""The loaders on Ray: several ranks, epochs that are dropped, a bucket, and that nothing is left behind."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import loaders
from harness.bucket.process import BUCKET, environment
from harness.condition import Condition
from harness.data.dataset import Dataset
from harness.machine.host import ROOT
from loaders.fleet import in_turn
from loaders.protocol import Incompatible
from tests import tiny
from tests.conftest import OF_RAY, Serve, skip_unless_available, until

KNOBS = {"block_size": 4, "fetch_factor": 3}


@pytest.fixture
def shared(ray_cluster: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the loaders use the cluster of this process."""
    monkeypatch.setenv("RAY_ADDRESS", ray_cluster)


def condition_of(name: str, **knobs: int) -> Condition:
    return Condition(dataset="tiny", loader=name, batch_size=16, knobs=tuple((KNOBS | knobs).items()))


@pytest.fixture
def alone() -> None:
    """Skips the tests of a loader that is not installed."""
    skip_unless_available("native_fleet")


@pytest.mark.usefixtures("alone", "shared")
def test_ranks_deliver_in_turn_and_leave_out_fewer_cells_than_there_are_ranks(tiny_set: Dataset) -> None:
    from loadstone.fleet import cluster

    condition = condition_of("native_fleet", producers=2, ranks=2)
    adapter = loaders.get("native_fleet")
    assert set(adapter.broken(condition)) == {"exact", "batches"}
    loader = adapter.open(tiny_set, Path(), condition, rows=True)
    try:
        assert loader.fetch_rows == 2 * 16 * 3
        assert len(cluster.find()) == 2
        batches = list(loader.epoch(0))
    finally:
        loader.close()
    rows = np.concatenate([batch.rows for batch in batches])
    assert len(rows) == len(set(rows.tolist())) == tiny.N - 1
    np.testing.assert_array_equal(np.concatenate([batch.x.toarray() for batch in batches]), tiny.truth()[rows])
    assert [len(batch.rows) for batch in batches] == [16] * 60 + [12] * 4  # two batches of each rank
    until(lambda: not cluster.find())
    with pytest.raises(Incompatible, match="do not come in the order of the files"):
        adapter.open(tiny_set, Path(), replace(condition, order="stream"), rows=True)


@pytest.mark.parametrize("name", OF_RAY)
@pytest.mark.usefixtures("alone", "shared")
def test_an_epoch_may_be_dropped_and_the_loader_closed_in_another(name: str, tiny_set: Dataset) -> None:
    from loadstone.fleet import cluster

    loader = loaders.get(name).open(tiny_set, Path(), condition_of(name), rows=True)
    try:
        dropped = [batch.rows.tolist() for _, batch in zip(range(5), loader.epoch(0), strict=False)]
        assert sorted(np.concatenate([batch.rows for batch in loader.epoch(1)]).tolist()) == list(range(tiny.N))
        again = [batch.rows.tolist() for _, batch in zip(range(5), loader.epoch(0), strict=False)]
    finally:
        loader.close()
    assert dropped == again
    until(lambda: not cluster.find())


@pytest.mark.usefixtures("alone", "shared")
def test_after_an_error_in_a_file_no_producer_is_left(tiny_folder: Path, tiny_set: Dataset, tmp_path: Path) -> None:
    from loadstone.fleet import cluster

    paths = [tmp_path / path.name for path in tiny_set.paths]
    for path in paths:
        path.write_bytes((tiny_folder / path.name).read_bytes())
    paths[0].write_bytes(b"no HDF5")
    damaged = replace(tiny_set, paths=tuple(paths))
    with pytest.raises(OSError, match="cannot be read as HDF5"):
        loaders.get("native_fleet").open(damaged, Path(), condition_of("native_fleet"), rows=True)
    until(lambda: not cluster.find())


def test_sources_of_any_length_are_yielded_in_turn() -> None:
    assert list(in_turn([[1, 2, 3], [], [4], [5, 6]])) == [1, 4, 5, 2, 6, 3]
    ended = []

    def numbers(n: int):
        try:
            yield from range(n)
        finally:
            ended.append(n)

    items = in_turn([numbers(3), numbers(4)])
    assert next(items) == 0
    items.close()
    assert sorted(ended) == [3, 4]


PROGRAM = """
import sys
from dataclasses import replace
from pathlib import Path
import numpy as np
import loaders
from harness.data import catalogue
from tests.loaders.test_fleet import condition_of
name, folder, bucket, served, out = sys.argv[1:]
dataset = replace(catalogue.load(folder), bucket=bucket, served=Path(served))
loader = loaders.get(name).open(dataset, Path(), replace(condition_of(name), cache="first", ttfb_ms=0), rows=True)
try:
    batches = [(batch.rows, batch.x.toarray()) for batch in loader.epoch(0)]
finally:
    loader.close()
rows, x = (np.concatenate(parts) for parts in zip(*batches))
np.savez(out, rows=rows, x=x)
"""


@pytest.mark.parametrize("name", OF_RAY)
def test_the_cells_of_a_bucket(name: str, tiny_folder: Path, serve: Serve, tmp_path: Path) -> None:
    """In a process of its own, with a cluster of its own, as a worker has them."""
    skip_unless_available(name)
    server = serve(tiny_folder)
    arguments = [name, tiny_folder, f"s3://{BUCKET}", server.folder, tmp_path / "cells.npz"]
    variables = {key: value for key, value in os.environ.items() if key != "RAY_ADDRESS"} | environment(server.endpoint)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *map(str, arguments)],
        cwd=ROOT, env=variables, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    with np.load(tmp_path / "cells.npz") as cells:
        assert sorted(cells["rows"].tolist()) == list(range(tiny.N))
        np.testing.assert_array_equal(cells["x"], tiny.truth()[cells["rows"]])
    assert server.counters()["requests"]["GET"] > 0
