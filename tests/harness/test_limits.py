"""Limits of memory and disk, with real control groups where this user can create them.

The files of control groups version 2 are checked by name in an ordinary folder.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
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
from harness.machine import blockdevice, cgroup, pagecache
from harness.records.measurement import Measurement
from harness.run import limits, runner
from tests import toys
from tests.conftest import program, until

TIMING = Timing(warmup_s=0.2, measure_s=1.5, timeout_s=60, order_s=0.1)
NO_MEMORY_GROUP = "this user cannot create a control group"


@pytest.fixture
def measure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Measurement]:
    monkeypatch.setattr(pagecache, "DROP_CACHES", Path("/nonexistent/drop_caches"))

    def measure_toy(toy: str, dataset: Dataset, **fields: object) -> Measurement:
        monkeypatch.setitem(loaders.NAMES, "toy", f"tests.toys:{toy}")
        condition = Condition(dataset="tiny", loader="toy" if toy else "native", **fields)
        grid = Grid(name="g", title="", timing=TIMING, conditions=(condition,))
        return runner.measure_one(grid, dataset, runner.Task(condition, 0), {}, tmp_path, toys.QUIET)

    return measure_toy


@pytest.fixture
def large(tmp_path: Path) -> Dataset:
    """A data set of 400 MB, uncompressed."""
    rows, per_row = 5_000, 10_000
    indices = np.tile(np.arange(per_row, dtype=np.int32), rows)
    x = csr_matrix((np.ones(rows * per_row, np.float32), indices, np.arange(rows + 1) * per_row))
    ad.AnnData(x).write_h5ad(tmp_path / "large.h5ad")
    return catalogue.load(str(tmp_path / "large.h5ad"))


def run_in(group: cgroup.Group, code: str) -> subprocess.CompletedProcess:
    return subprocess.run(group.wrap([sys.executable, "-c", code]), capture_output=True, text=True, timeout=60)


def test_a_process_over_the_memory_limit_is_killed_and_one_below_it_is_not() -> None:
    with cgroup.group("memory") as group:
        if group is None:
            pytest.skip(NO_MEMORY_GROUP)
        group.limit_memory(100_000_000)
        assert run_in(group, "b'x' * 20_000_000").returncode == 0
        assert not group.has_killed()
        assert run_in(group, "b'x' * 200_000_000").returncode == -9
        assert group.has_killed()


def test_a_group_is_removed_after_use() -> None:
    with cgroup.group("memory") as created:
        if created is None:
            pytest.skip(NO_MEMORY_GROUP)
        assert created.folders["memory"].exists()
        assert run_in(created, "print(7)").stdout == "7\n"
    assert not created.folders["memory"].exists()
    assert cgroup.kind("memory") == created.kind


@pytest.mark.parametrize(
    ("reads_per_s", "bytes_per_s", "piece", "expected_s"),
    [(100, 10**9, 4096, 1.0), (10**6, 10_000_000, 1 << 20, 1.6)],
    ids=["reads", "bytes"],
)
def test_a_disk_limit_is_held(
    tmp_path: Path, reads_per_s: int, bytes_per_s: int, piece: int, expected_s: float
) -> None:
    """Random reads from an empty page cache take as long as the limit says: 100 reads of 4 kB, or 16 MB in 1 MB."""
    path = tmp_path / "file"
    path.write_bytes(os.urandom(64 << 20))
    pagecache.drop([path])
    count = round(expected_s * min(reads_per_s, bytes_per_s / piece))
    code = (
        f"import os, time; fd = os.open({str(path)!r}, os.O_RDONLY); os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM);"
        f"t = time.perf_counter(); [os.pread(fd, {piece}, i * {64 << 20} // {count}) for i in range({count})];"
        "print(time.perf_counter() - t)"
    )
    with cgroup.group("io") as group:
        if group is None:
            pytest.skip(NO_MEMORY_GROUP)
        try:
            group.limit_reads(blockdevice.of(path), reads_per_s, bytes_per_s)
        except OSError as error:
            pytest.skip(f"the disk cannot be limited: {error}")
        seconds = float(run_in(group, code).stdout)
    assert seconds > 0.8 * expected_s


def test_the_read_ahead_is_set_for_a_disk_and_restored(
    measure: Callable[..., Measurement], large: Dataset, tmp_path: Path
) -> None:
    if reason := limits.unavailable("nvme", large.paths):
        pytest.skip(reason)
    file = blockdevice.DEVICES / blockdevice.of(large.paths[0]) / "queue" / "read_ahead_kb"
    before = file.read_text()
    with limits.limits(Condition(dataset="d", loader="native", disk="nvme"), large.paths) as limited:
        assert (limited.group, file.read_text().strip()) == (None, "128")
    assert limited.facts == {"disk": "nvme", "read_ahead_bytes": 131_072}
    assert file.read_text() == before


@pytest.mark.parametrize("kill", [signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_is_killed_leaves_the_read_ahead_as_it_was(large: Dataset, kill: signal.Signals) -> None:
    if reason := limits.unavailable("nvme", large.paths):
        pytest.skip(reason)
    device = blockdevice.of(large.paths[0])
    file = blockdevice.DEVICES / device / "queue" / "read_ahead_kb"
    before = file.read_text()
    code = (
        "import sys, time; from harness.machine import blockdevice\n"
        "with blockdevice.read_ahead(sys.argv[1], 64 << 10): print('set', flush=True); time.sleep(60)"
    )
    with program(code, device) as run:
        assert run.stdout.readline() == "set\n"
        assert file.read_text().strip() == "64"
        run.send_signal(kill)
        until(lambda: file.read_text() == before)


def test_the_disk_of_a_condition_slows_the_loader(measure: Callable[..., Measurement], large: Dataset) -> None:
    """About 125 MB are read in a second, although the loader could read several times as much."""
    if reason := limits.unavailable("gp3", large.paths):
        pytest.skip(reason)
    m = measure("", large, cache="first", disk="gp3", knobs=(("block_size", 64), ("fetch_factor", 4)))
    assert (m.status, m.reason) == ("ok", None)
    assert 0 < m.disk_read_bytes / m.seconds < 1.3 * 125e6
    assert m.provenance["limits"] == {
        "disk": "gp3", "read_ahead_bytes": 131_072, "reads_per_s": 3_000, "bytes_per_s": 125_000_000,
        "kind": cgroup.kind("io"),
    }  # fmt: skip


def test_a_bounded_store_stays_out_of_memory(
    measure: Callable[..., Measurement], large: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    if reason := limits.unavailable("bounded", large.paths):
        pytest.skip(reason)
    limit = 200_000_000
    m = measure("Mapping", large, cache="bounded", memory_limit_bytes=limit)
    assert m.status == "skipped"
    assert "less than 4 times the memory limit of 200 MB; take a larger data set" in m.reason
    monkeypatch.setattr(limits, "STORE_OVER_LIMIT", 2)
    m = measure("Mapping", large, cache="bounded", memory_limit_bytes=limit)
    assert (m.status, m.reason) == ("ok", None)
    assert m.provenance["limits"] == {"memory_bytes": limit, "kind": cgroup.kind("memory")}
    assert m.resident_before == 0
    assert 0 < m.resident_after < 0.5


@pytest.mark.parametrize("kind", ["Leaking", "Waiting"])
def test_a_worker_that_exceeds_its_limit_says_so(
    kind: str, measure: Callable[..., Measurement], large: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether Linux kills the worker itself or a process that the worker waits for."""
    if reason := limits.unavailable("bounded", large.paths):
        pytest.skip(reason)
    monkeypatch.setattr(limits, "STORE_OVER_LIMIT", 0)
    m = measure(kind, large, cache="bounded", memory_limit_bytes=250_000_000)
    assert (m.status, m.reason, m.rows) == ("failed", "it needs more memory than its limit", None)


def test_a_row_is_skipped_where_no_control_group_can_be_created(
    measure: Callable[..., Measurement], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tiny_set: Dataset
) -> None:
    monkeypatch.setattr(cgroup, "OWN", tmp_path / "nothing")
    for fields in ({"cache": "bounded", "memory_limit_bytes": 1}, {"disk": "hdd"}):
        m = measure("Toy", tiny_set, **fields)
        assert m.status == "skipped"
        assert "can create no control group" in m.reason


def test_a_file_in_memory_has_no_disk_to_limit() -> None:
    with pytest.raises(OSError, match="is not on a disk"):
        blockdevice.of(Path("/proc/self/status"))


def test_version_2_limits_a_delegated_scope(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Checks the files that the kernel's documentation names, in folders as `systemd-run --user --scope` makes."""
    scope = tmp_path / "user.slice" / "run-1.scope"
    scope.mkdir(parents=True)
    (scope.parent / "cgroup.subtree_control").write_text("cpu io memory pids")
    (scope / "cgroup.subtree_control").write_text("")
    (tmp_path / "own").write_text("0::/user.slice/run-1.scope\n")
    monkeypatch.setattr(cgroup, "ROOT", tmp_path)
    monkeypatch.setattr(cgroup, "OWN", tmp_path / "own")
    monkeypatch.setattr(cgroup.Group, "close", lambda self: None)
    with cgroup.group("memory", "io") as created:
        assert created.kind == "cgroup v2"
        folder = created.folders["memory"]
        assert created.folders["io"] == folder
        assert folder.parent == scope.parent
        created.limit_memory(123)
        created.limit_reads("254:0", 100, 150)
        assert run_in(created, "print(7)").stdout == "7\n"
        assert (folder / "memory.max").read_text() == "123"
        assert (folder / "memory.swap.max").read_text() == "0"
        assert (folder / "io.max").read_text() == "254:0 rbps=150 riops=100"
        created.unlimit_reads("254:0")
        assert (folder / "io.max").read_text() == "254:0 rbps=max riops=max"
        assert (folder / "cgroup.procs").read_text().strip().isdigit()
        (folder / "memory.events").write_text("low 0\nmax 3\noom 1\noom_kill 0\n")
        assert not created.has_killed()
        (folder / "memory.events").write_text("low 0\noom_kill 2\n")
        assert created.has_killed()
    (scope.parent / "cgroup.subtree_control").write_text("cpu memory pids")
    assert cgroup.kind("memory", "io") is None
