"""Bounded memory, with real control groups where this user can create them.

The files of control groups version 2 are checked by name in an ordinary folder.
"""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import anndata as ad
import numpy as np
import pytest
from scipy.sparse import csr_matrix

import loaders
from harness.condition import Condition, Timing
from harness.data import catalogue
from harness.data.dataset import Dataset
from harness.grids import Grid
from harness.machine import cgroup, pagecache
from harness.records.measurement import Measurement
from harness.run import runner
from tests import toys

TIMING = Timing(warmup_s=0.05, measure_s=0.5, timeout_s=60, order_s=0.1)


@pytest.fixture
def group() -> Iterator[cgroup.Group]:
    with cgroup.group() as created:
        if created is None:
            pytest.skip("this user cannot create a control group")
        yield created


@pytest.fixture
def measure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Measurement]:
    monkeypatch.setattr(pagecache, "DROP_CACHES", Path("/nonexistent/drop_caches"))

    def measure_toy(toy: str, dataset: Dataset, **fields: object) -> Measurement:
        monkeypatch.setitem(loaders.NAMES, "toy", f"tests.toys:{toy}")
        condition = Condition(dataset="tiny", loader="toy", **fields)
        grid = Grid(name="g", title="", timing=TIMING, conditions=(condition,))
        return runner.measure_one(grid, dataset, runner.Task(condition, 0), {}, tmp_path, toys.QUIET)

    return measure_toy


def allocate(group: cgroup.Group, megabytes: int) -> int:
    """Runs a process in the group that allocates `megabytes` MB. Returns its exit code."""
    code = f"import sys; sys.stdin.readline(); data = [b'x' * 1_000_000 for _ in range({megabytes})]"
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE)
    group.add(process.pid)
    process.communicate(b"go on\n", timeout=60)
    return process.returncode


def test_a_process_over_the_limit_is_killed_and_one_below_it_is_not(group: cgroup.Group) -> None:
    group.limit(100_000_000)
    assert allocate(group, 20) == 0
    assert not group.has_killed()
    assert allocate(group, 200) == -9
    assert group.has_killed()


def test_a_group_is_removed_after_use() -> None:
    with cgroup.group() as created:
        if created is None:
            pytest.skip("this user cannot create a control group")
        assert created.folder.exists()
        allocate(created, 1)
    assert not created.folder.exists()
    assert cgroup.kind() == created.kind


def test_a_bounded_store_stays_out_of_memory(
    measure: Callable[..., Measurement], tmp_path: Path, group: cgroup.Group
) -> None:
    """A file of 200 MB is read repeatedly with a quarter of its size as memory."""
    rows, per_row = 2_500, 10_000
    indices = np.tile(np.arange(per_row, dtype=np.int32), rows)
    x = csr_matrix((np.ones(rows * per_row, np.float32), indices, np.arange(rows + 1) * per_row))
    ad.AnnData(x).write_h5ad(tmp_path / "large.h5ad")
    dataset = catalogue.load(str(tmp_path / "large.h5ad"))
    m = measure("Mapping", dataset, cache="bounded")
    assert (m.status, m.reason) == ("ok", None)
    bound = m.provenance["bound"]
    assert bound["kind"] == group.kind
    assert bound["limit_bytes"] == bound["held_bytes"] + int(0.25 * dataset.size_bytes)
    assert m.resident_before == 0
    assert m.resident_after < 0.5
    assert measure("Mapping", dataset).resident_after > 0.9


def test_a_worker_killed_by_its_limit_reports_the_memory_that_it_needs(
    measure: Callable[..., Measurement], tiny_set: Dataset, group: cgroup.Group
) -> None:
    m = measure("Leaking", tiny_set, cache="bounded")
    assert m.status == "failed"
    assert m.reason.startswith("it needs ")
    assert "MB more than its limit of" in m.reason
    assert m.rows is None


def test_a_row_is_skipped_where_no_control_group_can_be_created(
    measure: Callable[..., Measurement], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tiny_set: Dataset
) -> None:
    monkeypatch.setattr(cgroup, "OWN", tmp_path / "nothing")
    m = measure("Toy", tiny_set, cache="bounded")
    assert m.status == "skipped"
    assert "no control group" in m.reason


def test_version_2_limits_a_delegated_scope(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Checks the files that the kernel's documentation names, in folders as `systemd-run --user --scope` makes."""
    scope = tmp_path / "user.slice" / "run-1.scope"
    scope.mkdir(parents=True)
    (scope.parent / "cgroup.subtree_control").write_text("cpu memory pids")
    (scope / "cgroup.subtree_control").write_text("")
    (tmp_path / "own").write_text("0::/user.slice/run-1.scope\n")
    monkeypatch.setattr(cgroup, "V2", tmp_path)
    monkeypatch.setattr(cgroup, "OWN", tmp_path / "own")
    monkeypatch.setattr(cgroup.Group, "close", lambda self: None)
    with cgroup.group() as created:
        assert created.kind == "cgroup v2"
        assert created.folder.parent == scope.parent
        created.limit(123)
        created.add(7)
        assert (created.folder / "memory.max").read_text() == "123"
        assert (created.folder / "memory.swap.max").read_text() == "0"
        assert (created.folder / "cgroup.procs").read_text() == "7"
        (created.folder / "memory.events").write_text("low 0\nmax 3\noom 1\noom_kill 0\n")
        assert not created.has_killed()
        (created.folder / "memory.events").write_text("low 0\noom_kill 2\n")
        assert created.has_killed()
