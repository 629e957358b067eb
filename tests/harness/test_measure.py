"""The timed loop, with a simulated clock that the loader advances."""

from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.condition import Timing
from harness.run.measure import Trace, measure, touch
from loadstone.tokens import TokenBatch

BATCH = SimpleNamespace(x=np.zeros((64, 8), np.float32))
TIMING = Timing(warmup_s=30, measure_s=120)


class Clock:
    """A simulated clock that is also the loader. pauses: the seconds before each batch of an epoch."""

    def __init__(self, pauses: list[float], batches_per_fetch: int = 1, open_s: float = 0.0) -> None:
        self.now, self.pauses, self.open_s = 1000.0, pauses, open_s
        self.fetch_rows = 64 * batches_per_fetch

    def __call__(self) -> float:
        return self.now

    def epoch(self, index: int) -> Iterator[SimpleNamespace]:
        self.now += self.open_s
        for pause in self.pauses:
            self.now += pause
            yield BATCH

    def measure(self, timing: Timing = TIMING, cache: str = "warm") -> Trace:
        return measure(self, timing, self, epoch_rows=64 * len(self.pauses), cache=cache)


def rate(trace: Trace) -> float:
    return trace.rows / trace.seconds


@given(st.floats(0.001, 20))
def test_no_bias_on_a_steady_stream(pause: float) -> None:
    trace = Clock([pause] * 10_000).measure()
    assert rate(trace) == pytest.approx(64 / pause, rel=1e-3)
    assert trace.seconds >= 120
    assert trace.seconds <= 120 + pause + 1e-6


@settings(max_examples=50)
@given(st.integers(2, 128), st.floats(1, 400))
def test_no_bias_on_a_bursty_stream(batches: int, fetch_s: float) -> None:
    """All batches of a fetch arrive at once: a window not cut at a fetch would miscount up to one fetch."""
    clock = Clock(([fetch_s] + [0.0] * (batches - 1)) * 200, batches)
    trace = clock.measure()
    assert rate(trace) == pytest.approx(64 * batches / fetch_s, rel=1e-3)
    assert trace.rows % clock.fetch_rows == 0


@settings(max_examples=50)
@given(st.integers(2, 64), st.floats(1, 10), st.floats(0.001, 0.1))
def test_no_bias_on_bursts_with_a_cost_per_batch(batches: int, fetch_s: float, batch_s: float) -> None:
    clock = Clock(([fetch_s + batch_s] + [batch_s] * (batches - 1)) * 500, batches)
    assert rate(clock.measure()) == pytest.approx(64 * batches / (fetch_s + batches * batch_s), rel=1e-3)


@settings(max_examples=50)
@given(st.integers(2, 64), st.integers(1, 40), st.integers(1, 63), st.floats(0.05, 2))
def test_no_bias_where_an_epoch_ends_in_a_short_fetch(
    batches: int, fetches: int, last_batches: int, batch_s: float
) -> None:
    """Every fetch costs in proportion to its batches, the short last one too: the true rate is constant."""
    last_batches = min(last_batches, batches - 1)
    full = ([batch_s * batches] + [0.0] * (batches - 1)) * fetches
    last = [batch_s * last_batches] + [0.0] * (last_batches - 1)
    trace = Clock(full + last, batches).measure()
    assert rate(trace) == pytest.approx(64 / batch_s, rel=1e-3)


@settings(max_examples=50)
@given(st.integers(2, 64), st.floats(1, 10), st.floats(0, 1), st.floats(0, 30))
def test_no_bias_where_the_first_batch_comes_before_the_rest_of_its_fetch(
    batches: int, fetch_s: float, share: float, warmup_s: float
) -> None:
    early = [share * fetch_s, (1 - share) * fetch_s] + [0.0] * (batches - 2)
    clock = Clock(early + ([fetch_s] + [0.0] * (batches - 1)) * 500, batches)
    trace = clock.measure(Timing(warmup_s=warmup_s, measure_s=120))
    assert rate(trace) == pytest.approx(64 * batches / fetch_s, rel=1e-3)


@given(st.floats(0.001, 5), st.floats(0, 5))
def test_waiting_is_the_time_of_the_window_that_the_consumer_did_not_use(pause: float, consumer_s: float) -> None:
    """A loader that makes each batch on demand keeps the consumer waiting for as long as that takes."""
    clock = Clock([pause] * 10_000)

    def sleep(seconds: float) -> None:
        clock.now += seconds

    trace = measure(clock, TIMING, clock, epoch_rows=640_000, consumer_s=consumer_s, sleep=sleep)
    assert trace.waiting_s / trace.seconds == pytest.approx(pause / (pause + consumer_s), rel=1e-3)
    assert rate(trace) == pytest.approx(64 / (pause + consumer_s), rel=1e-3)


def test_a_clock_that_goes_back_is_an_error() -> None:
    with pytest.raises(ValueError, match="the clock went back by 5 s"):
        Clock([1.0] * 100 + [-5.0] + [1.0] * 1000).measure()


def test_warm_up_is_not_counted() -> None:
    trace = Clock([25.0, 10.0] + [1.0] * 1000).measure()
    assert rate(trace) == 64
    assert trace.first_batch_s == 25


def test_a_window_is_lengthened_until_it_holds_five_whole_fetches() -> None:
    trace = Clock(([300.0] + [0.0] * 15) * 50, 16).measure()
    assert (trace.rows, trace.seconds) == (5 * 16 * 64, 5 * 300)


@given(st.integers(2, 16), st.lists(st.integers(56, 64), min_size=8, max_size=64), st.floats(1, 100))
def test_a_window_holds_five_fetches_of_a_loader_that_leaves_out_cells(
    batches: int, lengths: list[int], pause: float
) -> None:
    class Sparse(Clock):
        def epoch(self, index: int) -> Iterator[SimpleNamespace]:
            for i, _ in enumerate(super().epoch(index)):
                yield SimpleNamespace(x=BATCH.x[: lengths[i % len(lengths)]])

    clock = Sparse([pause] * 1_000, batches)
    assert clock.measure().rows >= 5 * clock.fetch_rows


def test_the_fetches_of_worker_processes_count_singly() -> None:
    """Two workers with fetches of 8 batches: three rounds of both hold six fetches."""
    clock = Clock(([300.0] + [0.0] * 15) * 50, 8)
    trace = measure(clock, TIMING, clock, epoch_rows=64 * 800, period_rows=16 * 64)
    assert (trace.rows, trace.seconds) == (3 * 16 * 64, 3 * 300)


@given(st.floats(0.01, 1), st.integers(10, 5_000))
def test_a_warm_window_begins_after_a_whole_epoch(pause: float, batches: int) -> None:
    """Unless that takes longer than `epoch_s`; then it begins at the next batch."""
    timing = Timing(warmup_s=1, epoch_s=600, measure_s=1)
    trace = Clock([pause] * batches).measure(timing)
    warmed_s = trace.warmed_epochs * batches * pause
    if trace.warmed_epochs < 1:
        assert abs(warmed_s - 600) <= pause + 1e-6
    else:
        assert warmed_s <= max(1, batches * pause) + 2 * pause
    assert Clock([pause] * batches).measure(timing, "bounded").warmed_epochs * batches * pause <= 1 + 2 * pause


@given(st.integers(1, 16), st.integers(40, 400), st.floats(0.01, 10))
def test_the_first_regime_measures_within_the_first_epoch(batches: int, fetches: int, fetch_s: float) -> None:
    """All later epochs are a hundred times as fast: none of their batches may count."""

    class Cached(Clock):
        def epoch(self, index: int) -> Iterator[SimpleNamespace]:
            self.pauses = [pause / (100 if index else 1) for pause in self.pauses]
            return super().epoch(index)

    clock = Cached(([fetch_s] + [0.0] * (batches - 1)) * fetches, batches)
    trace = clock.measure(Timing(warmup_s=30, measure_s=120), "first")
    assert trace.epochs == 0
    assert trace.warmed_epochs <= 0.2
    assert rate(trace) == pytest.approx(64 * batches / fetch_s, rel=1e-3)
    assert trace.rows <= 64 * batches * fetches
    assert trace.seconds >= min(120, 0.7 * fetch_s * fetches)


def test_a_first_epoch_too_short_for_a_window_is_an_error() -> None:
    with pytest.raises(ValueError, match="the first epoch has 2 full fetches, too few for a window within it"):
        Clock([1.0] * 32, 16).measure(TIMING, "first")


def test_a_small_data_set_is_read_repeatedly_and_the_start_of_every_epoch_counts() -> None:
    trace = Clock([1.0] * 10, open_s=2.0).measure()
    assert trace.epochs > 5
    assert rate(trace) == pytest.approx(64 * 10 / 12, rel=0.02)


@given(st.integers(5, 5_000))
def test_edges_are_evenly_chosen_arrivals_of_fetches(seconds: int) -> None:
    trace = Clock([0.25] * 10_000).measure(Timing(warmup_s=0, epoch_s=0, measure_s=seconds))
    assert 20 <= len(trace.edges) <= 64 or len(trace.edges) == 4 * seconds
    times, rows = np.array(trace.edges).T
    assert np.ptp(np.diff(times)) == 0
    assert times[-1] > 0.9 * trace.seconds
    np.testing.assert_allclose(rows, 64 * 4 * times)


def test_the_first_two_batches_are_timed_from_the_request() -> None:
    trace = Clock([3.0, 2.0] + [1.0] * 1000, open_s=1.0).measure()
    assert (trace.first_batch_s, trace.second_batch_s) == (4, 6)


def test_probes_are_taken_at_the_edges_of_the_window() -> None:
    clock = Clock([1.0] * 1000)
    trace = measure(clock, TIMING, clock, epoch_rows=64_000, probe=clock)
    assert trace.ended - trace.begun == trace.seconds == 120


def test_an_empty_epoch_is_an_error() -> None:
    with pytest.raises(ValueError, match="epoch 0 held no batch"):
        Clock([]).measure()


class CountedReads(np.ndarray):
    """Counts the elements read from it."""

    read = 0

    def sum(self, *args: object, **kwargs: object) -> np.ndarray:
        CountedReads.read += self.size
        return super().sum(*args, **kwargs)


def test_touch_reads_every_cache_line_and_returns_the_rows() -> None:
    x = np.zeros((64, 62_710), np.float32).view(CountedReads)
    assert touch(SimpleNamespace(x=x)) == (64, None)
    assert CountedReads.read == -(-x.nbytes // 64)


def test_touch_counts_tokens_without_padding() -> None:
    ids = np.zeros((64, 2_048), np.int64).view(CountedReads)
    mask = np.arange(2_048) < np.arange(64)[:, None]
    before = CountedReads.read
    assert touch(SimpleNamespace(x=TokenBatch(ids, mask, ids))) == (64, sum(range(64)))
    assert touch(SimpleNamespace(x=TokenBatch(ids, mask, None))) == (64, sum(range(64)))
    assert CountedReads.read - before == 3 * ids.nbytes // 64
