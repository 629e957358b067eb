"""Producers that are killed or hang lose nothing, and consumers hold no more than they say."""

import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import ray

from loadstone.fleet import asking, cluster
from loadstone.fleet.dataset import BESIDE
from tests.conftest import program, until
from tests.fleet.conftest import CONSUMER, in_store, rows_of
from tests.tiny import N


@contextmanager
def killing(actors: list, kills: int) -> Iterator[threading.Event]:
    """Kills producers at random moments while the `with` block runs. The event says that all kills have been made."""
    done, ended = threading.Event(), threading.Event()

    def kill() -> None:
        made = 0
        while made < kills and not ended.wait(random.uniform(0, 0.5)):
            try:
                os.kill(ray.get(random.choice(actors).pid.remote(), timeout=5), signal.SIGKILL)
                made += 1
            except ray.exceptions.RayError:  # it starts again
                continue
        done.set()

    thread = threading.Thread(target=kill)
    thread.start()
    yield done
    ended.set()
    thread.join()


def every_cell_once(actors: list, dataset, kills: int) -> None:
    """Kills producers while epochs are read, each of which must be what it is without kills."""
    expected = rows_of(dataset)
    with killing(actors, kills) as done:
        while True:
            all_kills = done.is_set()
            dataset.set_epoch(0)
            rows = []
            for batch in dataset:
                rows += batch["rows"].tolist()
                time.sleep(0.01)
            assert rows == expected
            assert sorted(rows) == list(range(N))
            if all_kills:
                return


def test_every_cell_comes_once_if_producers_are_killed(producers, fleet) -> None:
    every_cell_once(producers(2), fleet(), 3)


@pytest.mark.slow
def test_every_cell_comes_once_if_producers_are_killed_twenty_times(producers, fleet) -> None:
    every_cell_once(producers(3), fleet(), 20)


def test_a_producer_that_hangs_is_passed_over(producers, fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FIRST_PATIENCE_S", "LEAST_PATIENCE_S"):
        monkeypatch.setattr(asking, name, 0.5)
    actors = producers(2)
    dataset = fleet()
    expected = rows_of(dataset)
    pid = ray.get(actors[0].pid.remote())
    os.kill(pid, signal.SIGSTOP)
    try:
        dataset.set_epoch(0)
        assert rows_of(dataset) == expected
    finally:
        os.kill(pid, signal.SIGCONT)


def test_the_object_store_holds_no_more_than_is_stated(producers, fleet) -> None:
    producers(2)
    until(lambda: in_store()[0] == 0)
    datasets = [fleet(rank=rank, ranks=2, ahead=3, fetch_factor=8) for rank in range(2)]
    joined = [dataset._join() for dataset in datasets]
    bound = sum(
        (3 + BESIDE) * plan.row_bytes * plan.length.fetch_rows + asked.recipe_bytes + 20_000 for asked, plan in joined
    )  # and the heads of objects, which are larger than the small fetches of this test
    for epoch in range(3):
        for dataset in datasets:
            dataset.set_epoch(epoch)
        for _ in zip(*datasets, strict=True):
            used, spilled = in_store()
            assert used <= bound
            assert spilled == 0
    del datasets, joined, dataset, _
    until(lambda: in_store()[0] == 0)


def test_a_slow_rank_does_not_hold_up_another(producers, fleet) -> None:
    producers(1)
    slow, quick = (fleet(rank=rank, ranks=2, ahead=2) for rank in range(2))
    batches = iter(slow)
    begun = rows_of([next(batches)])
    rest = rows_of(quick)  # all of it, while the other takes none
    assert len(begun + rest + rows_of(batches)) == N - N % 2


def test_a_consumer_that_is_killed_lets_all_go(producers, fleet, ray_cluster: str, tiny_folder, monkeypatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", ray_cluster)
    producers(1)
    until(lambda: in_store()[0] == 0)
    consumer = program(
        CONSUMER + "batches = iter(dataset); next(batches); print('ready', flush=True); time.sleep(600)", tiny_folder
    )
    assert consumer.stdout.readline() == "ready\n"
    assert in_store()[0] > 0
    consumer.kill()
    consumer.communicate()
    until(lambda: in_store()[0] == 0)
    assert len(cluster.find()) == 1
    assert sorted(rows_of(fleet())) == list(range(N))
