"""A worker that fails costs only its own row, and the row states why. The tests run and kill real processes."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

import loaders
from harness.condition import Condition, Timing
from harness.data import catalogue
from harness.data.dataset import Dataset
from harness.errors import UserError
from harness.grids import Grid
from harness.machine import pagecache
from harness.records import jsonl
from harness.records.base import decode, encode
from harness.records.measurement import Measurement
from harness.run import runner
from tests import tiny, toys
from tests.conftest import program, until

TIMING = Timing(warmup_s=0.05, measure_s=0.2, timeout_s=30, order_s=0.1)


@pytest.fixture
def measure(monkeypatch: pytest.MonkeyPatch, tiny_set: Dataset, tmp_path: Path) -> Callable[..., Measurement]:
    # Otherwise evict, as root, drops the whole page cache where pages of the data set stay in memory.
    monkeypatch.setattr(pagecache, "DROP_CACHES", Path("/nonexistent/drop_caches"))

    def measure_toy(
        toy: str,
        timing: Timing = TIMING,
        outputs: Sequence[str] = ("csr",),
        dataset: Dataset = tiny_set,
        **fields: object,
    ) -> Measurement:
        """Measures the first of `outputs`, in a grid that has a condition for each of them."""
        monkeypatch.setitem(loaders.NAMES, "toy", f"tests.toys:{toy}")
        conditions = tuple(Condition(dataset="tiny", loader="toy", output=output, **fields) for output in outputs)
        grid = Grid(name="g", title="", timing=timing, conditions=conditions)
        return runner.measure_one(grid, dataset, runner.Task(conditions[0], 0), {}, tmp_path, toys.QUIET)

    return measure_toy


def test_a_valid_loader_is_measured(measure: Callable[..., Measurement], tmp_path: Path) -> None:
    m = measure("Toy")
    assert (m.status, m.reason) == ("ok", None)
    assert m.rows > 0
    assert m.seconds >= 0.2
    assert m.fetches == m.rows / 2
    assert m.peak_rss_bytes > 10e6
    assert m.cpu_s > 0
    assert m.resident_before == 1
    assert m.warmed_epochs >= 1
    assert 0 <= m.first_batch_s <= m.second_batch_s
    assert 1e6 < m.imported_bytes <= m.held_bytes <= m.peak_rss_bytes
    assert m.edges[-1][1] <= m.rows
    assert [path.name for path in (tmp_path / "orders").iterdir()] == [
        f"{m.condition.order_key}-{m.provenance['dataset_fingerprint']}.npz"
    ]
    assert decode(Measurement, encode(m)) == m


@pytest.mark.parametrize(
    ("toy", "status", "reason"),
    [
        ("Declining", "skipped", "toy cannot honour this condition: the toy declines every condition"),
        ("Raising", "failed", "ValueError: planted error"),
        ("Killed", "failed", "the worker was killed"),
        ("Crashing", "failed", "the worker died of SIGSEGV"),
        ("Exiting", "failed", "the worker ended with exit code 7 and no result: last words"),
        ("Garbage", "failed", "the worker wrote something else than its protocol"),
        ("Empty", "failed", "ValueError: epoch 0 held no batch"),
    ],
)
def test_a_failing_worker_gives_a_row_with_a_reason(
    measure: Callable[..., Measurement], toy: str, status: str, reason: str
) -> None:
    m = measure(toy)
    assert m.status == status
    assert m.reason.startswith(reason)
    assert m.rows is m.seconds is m.cpu_s is m.peak_rss_bytes is None


def test_the_emulated_consumer_limits_the_rate(measure: Callable[..., Measurement]) -> None:
    m = measure("Toy", consumer_ms=4.0)
    assert m.status == "ok"
    assert m.rows <= 2 * (m.seconds / 0.004 + 1)
    assert 0 < m.waiting_s < m.seconds


def test_files_that_change_while_they_are_read_end_the_run(measure: Callable[..., Measurement], tmp_path: Path) -> None:
    """The row is not published, and the run ends before the next measurement."""
    dataset = catalogue.load(str(tiny.write(tmp_path / "set")))
    m = measure("Replacing", dataset=dataset)
    assert (m.status, m.reason) == ("failed", "its files were replaced while they were read; start again")
    assert m.rows is None
    grid = Grid(name="g", title="", timing=TIMING, conditions=(m.condition,))
    tasks = [runner.Task(m.condition, repeat) for repeat in range(2)]
    with pytest.raises(UserError, match="were replaced while they were measured"):
        runner.run(grid, dataset, tasks, {}, tmp_path / "g.jsonl", toys.QUIET)
    assert len(jsonl.read(tmp_path / "g.jsonl")) == 1


def test_output_of_a_library_does_not_disturb_the_protocol(measure: Callable[..., Measurement]) -> None:
    assert measure("Chatty").status == "ok"


def test_a_hanging_worker_is_killed_at_its_timeout(measure: Callable[..., Measurement]) -> None:
    m = measure("Hanging", Timing(warmup_s=0, measure_s=0.2, timeout_s=5, order_s=0.1))
    assert (m.status, m.reason) == ("timeout", "no result after 5 s")
    assert not workers_below(psutil.Process())


def test_a_loader_that_is_not_installed_is_skipped_with_the_install_command(
    measure: Callable[..., Measurement], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toys.Toy, "imports", ("no_such_library",))
    m = measure("Toy")
    assert (m.status, m.reason) == ("skipped", "no_such_library not installed: EXTRAS=toy make setup")


def test_a_store_that_stays_in_memory_is_not_published_as_cold(
    measure: Callable[..., Measurement], tiny_set: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages that are locked in memory cannot be evicted."""
    import ctypes
    import mmap

    path = tiny_set.paths[-1]
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as view:
        anchor = ctypes.c_char.from_buffer(view)
        locked = ctypes.CDLL(None).mlock(ctypes.c_void_p(ctypes.addressof(anchor)), ctypes.c_size_t(len(view))) == 0
        m = measure("Toy", cache="first") if locked else None
        del anchor
    if not locked:
        pytest.skip("this user may not lock memory")
    assert m.status == "failed"
    assert "stayed in the page cache" in m.reason


PARENT = """
import sys
from pathlib import Path
import loaders
from harness.data import catalogue
from harness.machine import pagecache
from harness.run import runner
from harness.condition import Condition, Timing
from harness.grids import Grid
from tests import toys
pagecache.DROP_CACHES = Path("/nonexistent/drop_caches")
loaders.NAMES["toy"] = "tests.toys:Hanging"
grid = Grid(name="g", title="", timing=Timing(), conditions=(Condition(dataset="t", loader="toy"),))
task = runner.Task(grid.conditions[0], 0)
runner.measure_one(grid, catalogue.load(sys.argv[1]), task, {}, Path(sys.argv[2]), toys.QUIET)
"""


def test_a_measurement_is_kept_where_its_order_cannot_be_recorded(measure: Callable[..., Measurement]) -> None:
    m = measure("WithoutRowIds")
    assert (m.status, m.reason) == ("ok", "its order could not be recorded: MemoryError: no room for row ids")
    assert m.rows > 0


def test_an_order_is_recorded_once_for_both_outputs(measure: Callable[..., Measurement], tmp_path: Path) -> None:
    orders = tmp_path / "orders"
    assert measure("Toy", outputs=["dense", "csr"]).status == "ok"
    assert not orders.exists()
    measure("Toy", outputs=["csr", "dense"])
    (order,) = orders.iterdir()
    measure("Toy", outputs=["dense"])
    assert list(orders.iterdir()) == [order]


def test_tokens_are_made_and_counted_for_a_loader_that_knows_nothing_of_them(
    measure: Callable[..., Measurement],
) -> None:
    m = measure("OfTheSet", outputs=["tokens"], tokens="scgpt")
    assert (m.status, m.reason) == ("ok", None)
    assert m.tokens == m.rows * (tiny.GENES + 2)
    assert m.tokens_per_s == m.tokens / m.seconds
    assert measure("OfTheSet").tokens is None


def test_values_that_are_no_counts_have_no_tokens(measure: Callable[..., Measurement]) -> None:
    m = measure("Logarithms", outputs=["tokens"], tokens="geneformer")
    assert m.status == "failed"
    assert m.reason.startswith("ValueError: gene 0 of a cell has 0.5; tokens are made from counts")


def test_a_failed_worker_leaves_its_log(measure: Callable[..., Measurement], tmp_path: Path) -> None:
    m = measure("Raising")
    assert "planted error" in (tmp_path / "logs" / f"{m.condition.key}-0.log").read_text()
    assert "Traceback" in (tmp_path / "logs" / f"{m.condition.key}-0.log").read_text()


def row(**fields: object) -> Measurement:
    values = {"timing": TIMING, "repeat": 0, "status": "ok", "rows": 1, "seconds": 1.0, "fetches": 9.0}
    return Measurement(condition=Condition(dataset="t", loader="native"), **values | fields)


@pytest.mark.parametrize(
    ("fields", "retry", "tree_dirty", "again"),
    [
        ({}, False, False, False),
        ({"git_dirty": True}, False, False, True),
        ({"code": "older"}, False, False, True),
        ({"git_dirty": True}, False, True, False),
        ({"status": "failed"}, False, False, False),
        ({"status": "failed"}, True, False, True),
        ({"status": "skipped", "reason": "torch not installed: EXTRAS=native make setup"}, False, False, True),
        ({"dataset_fingerprint": "of other files"}, False, False, True),
        ({"timing": Timing()}, False, False, True),
    ],
)
def test_a_condition_is_measured_again_unless_its_row_is_still_valid(
    tiny_set: Dataset, monkeypatch: pytest.MonkeyPatch, fields: dict, retry: bool, tree_dirty: bool, again: bool
) -> None:
    monkeypatch.setattr(runner.git, "state", lambda: ("abc", tree_dirty))
    monkeypatch.setattr(runner.git, "code", lambda: "present")
    provenance = {"dataset_fingerprint": tiny_set.fingerprint, "git_dirty": False, "code": "present"}
    provenance |= {name: fields[name] for name in fields if name in provenance}
    done = row(**{k: v for k, v in fields.items() if k not in provenance}, provenance=provenance)
    grid = Grid(name="g", title="", timing=TIMING, conditions=(done.condition,))
    assert len(runner.missing(grid, tiny_set, [done, replace(done, again=True)], 1, retry)) == 2 * again


def test_the_worker_dies_with_its_parent(tiny_folder: Path, tmp_path: Path) -> None:
    running = program(PARENT, tiny_folder, tmp_path)
    parent = psutil.Process(running.pid)
    until(lambda: workers_below(parent))
    time.sleep(2)  # for its imports, after which it is set to die with its parent
    (worker,) = workers_below(parent)
    running.kill()
    running.wait()
    until(lambda: not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE)


def workers_below(parent: psutil.Process) -> list[psutil.Process]:
    """The descendants of `parent` that are measurement workers; other descendants are left out."""
    workers = []
    for process in parent.children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if "harness.run.worker" in process.cmdline():
                workers.append(process)
    return workers


def test_each_row_is_appended_before_the_next_measurement_begins(
    monkeypatch: pytest.MonkeyPatch, tiny_set: Dataset, tmp_path: Path
) -> None:
    monkeypatch.setitem(loaders.NAMES, "toy", "tests.toys:Raising")
    conditions = tuple(Condition(dataset="t", loader="toy", seed=seed) for seed in range(2))
    monkeypatch.setattr(pagecache, "DROP_CACHES", Path("/nonexistent/drop_caches"))
    grid = Grid(name="g", title="", timing=TIMING, conditions=conditions)
    path, lines = tmp_path / "g.jsonl", []
    display = toys.SimpleNamespace(
        begin=lambda *_: lines.append(len(jsonl.read(path))), phase=lambda *_: None, end=lambda *_: None
    )
    runner.run(grid, tiny_set, runner.missing(grid, tiny_set, [], 1, False), {}, path, display)
    assert lines == [0, 1, 2]  # the third is the second of the A/A pair
    assert len(jsonl.read(path)) == 3


def test_processes_are_measured_together(measure: Callable[..., Measurement]) -> None:
    """Each delivers at most two cells per ms, from the start of the first window to the end of the last."""
    single, three = (measure("Toy", processes=n) for n in (1, 3))
    assert (three.status, three.reason) == ("ok", None)
    assert three.fetches == three.rows / 2
    assert 0 < three.cells_per_s < 3 * 2_000
    assert three.peak_rss_bytes > 2 * single.peak_rss_bytes
    assert three.seconds >= 0.2
    assert three.edges is None
    assert decode(Measurement, encode(three)) == three


@pytest.mark.parametrize("toy", ["Declining", "Killed"])
def test_the_failure_of_one_process_is_the_reason_for_all(measure: Callable[..., Measurement], toy: str) -> None:
    single, two = (measure(toy, processes=n) for n in (1, 2))
    assert (two.status, two.reason) == (single.status, single.reason)
