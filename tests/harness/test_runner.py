"""The runner's decisions, with workers that are functions: no process is started, and no time passes."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import loaders
from harness.condition import Condition, Timing
from harness.data.dataset import Dataset
from harness.grids import Grid
from harness.machine import pagecache
from harness.records import jsonl, orders
from harness.records.measurement import Measurement
from harness.run import runner
from harness.run.job import Held, Job, Outcome, Window
from harness.run.process import Pause
from tests import toys

TIMING = Timing(warmup_s=1, measure_s=2, timeout_s=30, order_s=1)
WINDOW = Window(
    rows=640, seconds=2.5, windows=[300, 300], waiting_s=0.5, epochs=0, open_s=0.25, first_batch_s=0.125, fetches=10.0,
    cpu_s=3.0, peak_rss_bytes=10**8, disk_read_bytes=4096, marks={}, edges_s=(100.0, 102.5),
)  # fmt: skip
OK = Outcome(status="ok", answer=WINDOW)


class Workers:
    """Replaces `spawn`: stores each job, and returns the next of the given outcomes (the last one again and again)."""

    def __init__(self, *outcomes: Outcome) -> None:
        self.outcomes, self.jobs, self.cores = list(outcomes), [], []

    def __call__(
        self, job: Job, cores: int | None, timeout_s: float | None, progress: Callable, pause: Pause | None = None
    ) -> Outcome:
        self.jobs.append(job)
        self.cores.append(cores)
        assert Job.from_json(job.to_json()) == job
        if pause is not None and pause.group is None:
            pause.begin(0)
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
    assert (m.windows, m.waiting_s, m.fetches, m.disk_read_bytes) == ([300, 300], 0.5, 10.0, 4096)
    assert m.resident_before == 0
    assert m.provenance["store_bytes"] == tiny_set.size_bytes
    (job,) = workers.jobs
    assert (job.task, job.loader, job.adapter) == ("measure", "toy", "tests.toys:Toy")
    assert (job.timing, job.dataset, workers.cores) == (TIMING, tiny_set, [1])
    assert all(Path(file).is_absolute() for file in job.files)


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
        of_repeat = tasks[12 * repeat : 12 * (repeat + 1)]
        assert {task.repeat for task in of_repeat} == {repeat}
        assert {task.condition for task in of_repeat} == set(conditions)
        assert [task.condition for task in of_repeat] != conditions
    workers = Workers(OK)
    runner.run(grid, tiny_set, tasks[:20], {}, path, toys.QUIET, workers)
    assert [job.condition for job in workers.jobs] == [task.condition for task in tasks[:20]]
    done = jsonl.read(path)
    assert [(m.condition, m.repeat) for m in done] == [tuple(task) for task in tasks[:20]]
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
    assert (m.rows, m.seconds, m.windows, m.waiting_s) == (600, 7.0, None, None)
    assert m.peak_rss_bytes == 3 * 10**8
    assert sorted(job.condition.seed for job in workers.jobs) == [5, 6, 7]
    assert sum(job.order_path is not None for job in workers.jobs) == 1


def test_one_of_several_processes_that_fails_is_the_reason_for_all(tiny_set: Dataset, tmp_path: Path) -> None:
    workers = Workers(OK, Outcome(status="failed", reason="no more shelves"))
    m = one(tiny_set, tmp_path, workers, toy(processes=2))
    assert (m.status, m.reason, m.rows) == ("failed", "no more shelves", None)


def test_a_worker_killed_by_its_limit_is_weighed_without_one(
    tiny_set: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Limited(Workers):
        def __call__(
            self, job: Job, cores: int | None, timeout_s: float, progress: Callable, pause: Pause | None = None
        ):
            if pause:
                pause.begin(50_000_000)
            return super().__call__(job, cores, timeout_s, progress)

    class Group(toys.SimpleNamespace):
        def __enter__(self) -> "Group":
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def limit(self, n_bytes: int) -> None:
            self.limit_bytes = n_bytes

    group = Group(kind="cgroup v2")
    monkeypatch.setattr("harness.run.memory_limit.cgroup.group", lambda: group)
    killed = Outcome(status="failed", reason="its memory limit killed it", out_of_memory=True)
    workers = Limited(killed, Outcome(status="ok", answer=Held(held_bytes=150_000_000)))
    m = one(tiny_set, tmp_path, workers, toy(cache="bounded"))
    assert [job.task for job in workers.jobs] == ["measure", "weigh"]
    assert m.reason.startswith("it needs 100 MB more than its limit of 50 MB: 50 held with full buffers")
    assert group.limit_bytes == m.provenance["bound"]["limit_bytes"] == 50_000_000 + tiny_set.size_bytes // 4
