"""The search for the most accelerators, and its probes with an artificial clock that the loader advances."""

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from harness import grids
from harness.__main__ import main
from harness.condition import LEAST_UTILISATION, Timing
from harness.records import jsonl
from harness.records.validate import of_measurement
from harness.run.utilisation import CLOSE, Fed, busy, measure, most_fed

BATCH = 240
TIMING = Timing(warmup_s=0.1, epoch_s=3, measure_s=3)


@given(st.integers(0, 3000), st.integers(1, 5000), st.integers(1, 2000))
@example(39, 1, 583)
def test_the_search_finds_the_threshold_of_a_falling_curve(threshold: int, first: int, most: int) -> None:
    probes: list[int] = []

    def utilisation(n: int) -> float:
        assert 1 <= n <= most
        probes.append(n)
        return LEAST_UTILISATION if n <= threshold else LEAST_UTILISATION - 1e-9

    fed = most_fed(utilisation, first, most)
    truth = min(threshold, most)
    assert fed == 0 or fed in probes
    assert fed <= truth <= fed * (1 + CLOSE)
    assert truth >= 40 or fed == truth
    assert len(probes) == len(set(probes)) <= 25


class Loader:
    """A loader and its clock. A fetch takes `fetch_s` and is read whole; `ahead` fetches are kept ready.

    With `ahead` it reads on while a consumer computes; without, only when it is asked.
    An epoch takes `start_s` to begin.
    """

    def __init__(
        self, fetch_s: float, batches: int = 1, ahead: int = 0, epoch: int = 100, start_s: float = 0.0
    ) -> None:
        self.now, self.fetch_s, self.ahead, self.batches = 1000.0, fetch_s, ahead, batches
        self.epoch_batches, self.ready, self.start_s = epoch, 0.0, start_s
        self.fetch_rows = BATCH * batches
        self.batch = SimpleNamespace(x=np.zeros((BATCH, 1), np.float32))

    def __call__(self) -> float:
        return self.now

    def compute(self, seconds: float) -> None:
        self.now += seconds
        if self.ahead:
            self.ready = min(self.ahead, self.ready + seconds / self.fetch_s)

    def epoch(self, index: int) -> Iterator[SimpleNamespace]:
        self.now += self.start_s
        for i in range(self.epoch_batches):
            if i % self.batches == 0:
                self.now += max(0.0, 1 - self.ready) * self.fetch_s
                self.ready = max(0.0, self.ready - 1)
            yield self.batch

    def measure(self, step_s: float, timing: Timing = TIMING, compute: Callable | None = None) -> Fed:
        return measure(
            self, timing, self, epoch_rows=BATCH * self.epoch_batches, batch_size=BATCH, step_s=step_s,
            compute=compute or self.compute,
        )  # fmt: skip


@settings(max_examples=10)
@given(st.floats(0.004, 0.02), st.sampled_from([0.06, 0.285]))
def test_a_loader_that_reads_only_when_asked_waits_for_every_cell(batch_s: float, step_s: float) -> None:
    fed = Loader(batch_s).measure(step_s)
    for n, utilisation, _ in fed.probes:
        assert utilisation == pytest.approx(step_s / (step_s + n * batch_s), rel=0.01)
    assert fed.accelerators == pytest.approx(step_s / batch_s / 9, rel=CLOSE + 0.02, abs=1)


@settings(max_examples=10)
@given(st.floats(0.004, 0.02), st.sampled_from([0.06, 0.285]))
def test_a_loader_that_reads_on_waits_for_what_it_cannot_deliver(batch_s: float, step_s: float) -> None:
    """The utilisation is its rate over that of the accelerators."""
    fed = Loader(batch_s, ahead=1000).measure(step_s)
    for n, utilisation, _ in fed.probes:
        assert utilisation == pytest.approx(min(1, step_s / (n * batch_s)), rel=0.1)
    assert fed.accelerators == pytest.approx(step_s / batch_s / 0.9, rel=CLOSE + 0.1, abs=1)


@settings(max_examples=10)
@given(st.floats(0.05, 1.0), st.integers(2, 68))
def test_a_probe_holds_whole_fetches(fetch_s: float, batches: int) -> None:
    """Its edges are at fetches: the first of them is not counted, and the last is paid for."""
    fed = Loader(fetch_s, batches, epoch=4 * batches).measure(0.06, Timing(warmup_s=0.5, epoch_s=3, measure_s=1))
    for n, utilisation, _ in fed.probes:
        assert utilisation == pytest.approx(0.06 / (0.06 + n * fetch_s / batches), rel=0.02)
    assert fed.trace.rows % (BATCH * batches) == 0
    assert fed.trace.warmed_epochs > 0


@settings(max_examples=20)
@given(st.floats(0.05, 0.2), st.integers(25, 40))
def test_a_probe_lies_within_an_epoch_if_that_is_long_enough(fetch_s: float, fetches: int) -> None:
    fed = Loader(fetch_s, batches=8, epoch=8 * fetches, start_s=20.0).measure(0.285)
    for n, utilisation, _ in fed.probes:
        assert utilisation == pytest.approx(0.285 / (0.285 + n * fetch_s / 8), rel=0.02)
    assert fed.trace.epochs == 0


def test_what_was_read_ahead_while_idle_does_not_count() -> None:
    """Between two probes the loader fills a buffer of 20 fetches, which would feed a short probe."""
    loader = Loader(0.1, batches=5, ahead=20)  # 50 minibatches a second are 33 accelerators at 0.6 s a step
    fed = loader.measure(0.6, Timing(warmup_s=0.5, epoch_s=3, measure_s=1))
    assert 30 <= fed.accelerators <= 33
    for n, utilisation, _ in fed.probes:
        assert utilisation == pytest.approx(min(1, 0.6 * 50 / n), rel=0.1)


def test_a_loader_that_cannot_feed_one_gets_0_and_the_utilisation_of_one() -> None:
    fed = Loader(0.06).measure(0.06)
    assert (fed.accelerators, fed.probes[-1][0]) == (0, 1)
    assert fed.probes[-1][1] == pytest.approx(0.5)
    assert fed.trace.waiting_s == pytest.approx(fed.trace.seconds / 2, rel=0.03)


def test_no_step_takes_more_cells_than_an_epoch_has() -> None:
    fed = Loader(1e-4, epoch=50).measure(0.06, Timing(warmup_s=0.01, epoch_s=3, measure_s=1))
    assert fed.accelerators == 50
    assert fed.trace.epochs > 0


def test_late_wake_ups_are_waiting() -> None:
    loader = Loader(1e-3)
    fed = loader.measure(0.06, compute=lambda seconds: loader.compute(1.2 * seconds))
    assert fed.probes[-1][1] == pytest.approx(0.06 / (1.2 * 0.06 + 0.001), rel=0.01)


def test_an_empty_epoch_is_refused() -> None:
    with pytest.raises(ValueError, match="epoch 0 held no batch"):
        Loader(0.1, epoch=0).measure(0.06)


def test_bench_measures_draws_and_skips_what_is_not_asked(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row of our loader, from the grid to the figure, in steps of 2 ms."""
    timing = {"warmup_s": 0.05, "epoch_s": 1, "measure_s": 0.1, "timeout_s": 60, "order_s": 0}
    arm = {"loader": "native", "batch_size": 8, "accelerator_ms": 2, "consumer": ["idle", "busy"]}
    arm["knobs"] = {"block_size": 4, "fetch_factor": 4}
    grid = {"title": "t", "every": {"cache": "warm"}, "timing": timing, "arm": [arm]}
    monkeypatch.setattr(grids, "_grids", lambda: {"accelerators": grid})
    main(["bench", "--dataset", str(tiny_folder), "--grid", "accelerators", "--results", str(tmp_path)])
    measured = jsonl.read(tmp_path / "accelerators.jsonl")
    assert [m.status for m in measured] == ["ok"] * 3, [m.reason for m in measured]
    assert {m.condition.consumer for m in measured} == {"idle", "busy"}
    assert [reason for m in measured for reason in of_measurement(m)] == []
    assert {path.name for path in (tmp_path / "figures").iterdir()} == {
        f"tiny-accelerators-{end}" for end in ("table.md", "accelerators.png", "accelerators.pdf", "accelerators.csv")
    }


def test_the_busy_consumer_works_until_its_time_has_passed() -> None:
    readings = iter(np.arange(0.0, 10.0, 0.25))
    busy(1.0, lambda: next(readings))
    assert next(readings) == 1.25
