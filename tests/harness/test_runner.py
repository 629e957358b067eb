"""The runner's decisions, with workers that are functions: no process is started, and no time passes."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

import loaders
from harness.condition import Condition, Timing
from harness.data.dataset import Dataset
from harness.grids import Grid
from harness.machine import cgroup, pagecache
from harness.machine.cgroup import Group
from harness.records import jsonl, orders
from harness.records.measurement import Measurement
from harness.run import limits, runner
from harness.run.job import Job, Outcome, Window
from tests import toys

TIMING = Timing(warmup_s=1, measure_s=2, timeout_s=30, order_s=1)
WINDOW = Window(
    rows=640, seconds=2.5, edges=[[1.5, 320], [2.5, 640]], waiting_s=0.5, epochs=0, warmed_epochs=1.5, import_s=2.0,
    open_s=0.25, first_batch_s=0.125, second_batch_s=0.25, fetches=10.0, cpu_s=3.0, peak_rss_bytes=10**8,
    held_bytes=10**7, imported_bytes=10**6, disk_read_bytes=4096, disk_reads=1, marks={},
    requests=None, received_bytes=None, edges_s=(100.0, 102.5),
)  # fmt: skip
OK = Outcome(status="ok", answer=WINDOW)


class Workers:
    """Replaces `spawn`: stores each job, and returns the next of the given outcomes (the last one again and again)."""

    def __init__(self, *outcomes: Outcome) -> None:
        self.outcomes, self.jobs, self.cores, self.groups = list(outcomes), [], [], []

    def __call__(
        self,
        job: Job,
        cores: int | None,
        timeout_s: float | None,
        progress: Callable,
        group: Group | None = None,
        begin: Callable | None = None,
    ) -> Outcome:
        self.jobs.append(job)
        self.cores.append(cores)
        self.groups.append(group)
        assert Job.from_json(job.to_json()) == job
        for point in job.waits:
            begin(point)
        return self.outcomes.pop(0) if len(self.outcomes) > 1 else self.outcomes[0]


@pytest.fixture(autouse=True)
def _toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(loaders.NAMES, "toy", "tests.toys:Toy")
    monkeypatch.setattr(pagecache, "DROP_CACHES", Path("/nonexistent/drop_caches"))


def grid_of(*conditions: Condition, timing: Timing = TIMING) -> Grid:
    return Grid(name="g", title="", timing=timing, conditions=conditions)


def toy(**fields: object) -> Condition:
    return Condition(dataset="tiny", loader="toy", **fields)


def one(dataset: Dataset, folder: Path, workers: Workers, *conditions: Condition, repeat: int = 0) -> Measurement:
    """Measures the first of the conditions, in a grid that contains all of them. Starts no process."""
    grid = grid_of(*conditions)
    return runner.measure_one(grid, dataset, runner.Task(conditions[0], repeat), {}, folder, toys.QUIET, workers)


def test_the_window_is_the_row(tiny_set: Dataset, tmp_path: Path) -> None:
    workers = Workers(OK)
    m = one(tiny_set, tmp_path, workers, toy(cores=1))
    assert (m.status, m.reason, m.rows, m.seconds, m.cells_per_s) == ("ok", None, 640, 2.5, 256)
    assert (m.edges, m.waiting_s, m.fetches, m.disk_read_bytes) == ([[1.5, 320], [2.5, 640]], 0.5, 10.0, 4096)
    assert (m.warmed_epochs, m.import_s, m.second_batch_s, m.held_bytes, m.imported_bytes) == (
        1.5,
        2,
        0.25,
        10**7,
        10**6,
    )
    assert m.resident_before == 1
    assert m.provenance["limits"] == {}
    assert m.provenance["rules_edition"] == 2
    assert m.provenance["store_bytes"] == tiny_set.size_bytes
    (job,) = workers.jobs
    assert (job.task, job.loader, job.adapter) == ("measure", "toy", "tests.toys:Toy")
    assert (job.timing, job.dataset, workers.cores) == (TIMING, tiny_set, [1])


@pytest.mark.parametrize("cache", ["first", "warm"])
def test_the_page_cache_is_as_the_regime_says(tiny_set: Dataset, tmp_path: Path, cache: str) -> None:
    m = one(tiny_set, tmp_path, Workers(OK), toy(cache=cache))
    assert m.resident_before == (cache == "warm")


def test_a_store_larger_than_memory_cannot_be_warm(
    tiny_set: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: toys.SimpleNamespace(available=1_000, total=2_000))
    workers = Workers(OK)
    m = one(tiny_set, tmp_path, workers, toy(cache="warm"))
    assert (m.status, workers.jobs) == ("skipped", [])
    assert "is larger than the 0.0 GB of memory that are free" in m.reason


def test_a_store_that_does_not_stay_in_memory_cannot_be_warm(
    tiny_set: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pagecache, "warm", lambda files: pagecache.drop(files) or pagecache.resident(files))
    workers = Workers(OK)
    m = one(tiny_set, tmp_path, workers, toy(cache="warm"))
    assert (m.status, workers.jobs) == ("skipped", [])
    assert "only 0% of its store of 0.0 GB stayed in memory" in m.reason


@pytest.mark.parametrize("status", ["failed", "timeout", "skipped"])
def test_a_worker_without_a_window_leaves_a_reason_and_its_log(tiny_set: Dataset, tmp_path: Path, status: str) -> None:
    m = one(tiny_set, tmp_path, Workers(Outcome(status=status, reason="why", log="its last words")), toy())
    assert (m.status, m.reason, m.rows) == (status, "why", None)
    assert (tmp_path / "logs").exists() == (status != "skipped")


def test_every_condition_is_measured_once_a_repeat_in_shuffled_order(tiny_set: Dataset, tmp_path: Path) -> None:
    conditions = [toy(seed=seed) for seed in range(12)]
    grid, path = grid_of(*conditions), tmp_path / "g.jsonl"
    tasks = runner.missing(grid, tiny_set, [], 3, retry=False)
    for repeat in range(3):
        of_repeat = tasks[13 * repeat : 13 * (repeat + 1)]
        assert {task.repeat for task in of_repeat} == {repeat}
        assert {task.condition for task in of_repeat if not task.again} == set(conditions)
        assert [task.condition for task in of_repeat if task.again] == [conditions[0]]  # the A/A pair
        assert [task.condition for task in of_repeat if not task.again] != conditions
    workers = Workers(OK)
    runner.run(grid, tiny_set, tasks[:20], {}, path, toys.QUIET, workers)
    assert [job.condition for job in workers.jobs] == [task.condition for task in tasks[:20]]
    done = jsonl.read(path)
    assert [(m.condition, m.repeat, m.again) for m in done] == [tuple(task) for task in tasks[:20]]
    assert runner.missing(grid, tiny_set, done, 3, retry=False) == tasks[20:]


def test_a_store_that_could_not_be_made_fails_without_a_worker(tiny_set: Dataset, tmp_path: Path) -> None:
    workers = Workers(OK)
    task = runner.Task(toy(), 0)
    m = runner.measure_one(grid_of(toy()), tiny_set, task, {"toy": "the disk is full"}, tmp_path, toys.QUIET, workers)
    assert (m.status, m.reason) == ("failed", "its store could not be made: the disk is full")
    assert workers.jobs == []


@pytest.mark.parametrize(
    ("condition", "others", "repeat", "exists", "recorded"),
    [
        (toy(), [], 0, False, True),
        (toy(), [], 0, True, True),
        (toy(), [], 1, False, True),
        (toy(), [], 1, True, False),
        (toy(output="dense"), [], 0, False, True),
        (toy(output="dense"), [toy()], 0, False, False),
        (toy(), [toy(output="dense")], 0, False, True),
        (toy(), [toy(cache="first")], 0, False, True),
        (toy(cache="first"), [toy()], 0, False, True),
        (toy(disk="hdd"), [toy()], 0, False, False),
        (toy(cache="warm"), [toy(seed=1)], 0, False, True),
    ],
)
def test_an_order_is_recorded_once(
    tiny_set: Dataset, tmp_path: Path, condition: Condition, others: list, repeat: int, exists: bool, recorded: bool
) -> None:
    path = orders.path(tmp_path, condition, tiny_set.fingerprint)
    if exists:
        path.parent.mkdir()
        path.touch()
    workers = Workers(OK)
    one(tiny_set, tmp_path, workers, condition, *others, repeat=repeat)
    assert workers.jobs[0].order_path == (path.resolve() if recorded else None)


def test_processes_add_up_over_the_time_from_the_first_to_the_last(tiny_set: Dataset, tmp_path: Path) -> None:
    windows = [replace(WINDOW, rows=rows, edges_s=(100.0 + i, 103.0 + 2 * i)) for i, rows in enumerate((100, 200, 300))]
    workers = Workers(*(Outcome(status="ok", answer=window) for window in windows))
    m = one(tiny_set, tmp_path, workers, toy(processes=3, seed=5))
    assert (m.rows, m.seconds, m.edges, m.waiting_s) == (600, 7.0, None, None)
    assert m.peak_rss_bytes == 3 * 10**8
    assert sorted(job.condition.seed for job in workers.jobs) == [5, 6, 7]
    assert sum(job.order_path is not None for job in workers.jobs) == 1


def test_one_of_several_processes_that_fails_is_the_reason_for_all(tiny_set: Dataset, tmp_path: Path) -> None:
    workers = Workers(OK, Outcome(status="failed", reason="no more shelves"))
    m = one(tiny_set, tmp_path, workers, toy(processes=2))
    assert (m.status, m.reason, m.rows) == ("failed", "no more shelves", None)


def test_all_processes_of_a_condition_share_one_limit(
    tiny_set: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Recorded(Group):
        def __init__(self) -> None:
            super().__init__("cgroup v2", {})

        def limit_memory(self, n_bytes: int) -> None:
            self.limit_bytes = n_bytes

    group = Recorded()
    monkeypatch.setattr(cgroup, "group", lambda *controllers: nullcontext(group))
    monkeypatch.setattr(limits, "STORE_OVER_LIMIT", 0)
    monkeypatch.setattr(limits, "libraries", lambda loader: [])
    workers = Workers(OK)
    m = one(tiny_set, tmp_path, workers, toy(cache="bounded", memory_limit_bytes=10**9, processes=2))
    assert workers.groups == [group, group]
    assert group.limit_bytes == 10**9
    assert m.provenance["limits"] == {"memory_bytes": 10**9, "kind": "cgroup v2"}
