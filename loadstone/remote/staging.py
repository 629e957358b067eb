"""Brings the reads of a fetch from object storage into memory, and runs each task when its bytes have come."""

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count

import numpy as np

from loadstone.reading.disk import Disk
from loadstone.reading.reads import Reads
from loadstone.remote.objects import CONNECTIONS, Object

PAGE = 4_096  # bytes
SHORT, LONG = 64, 2**18  # bytes of the reads in a trial


class Stage:
    """The bytes of one fetch, in a file in memory: a sparse image of all objects, one after another.

    The compiled loops read from it as from any file. `Staging` closes it when the fetch is over.
    """

    def __init__(self, bases: Mapping[int, int]) -> None:
        self.fd, self.bases = os.memfd_create("loadstone"), bases

    def place(self, fd: int | np.ndarray, place: np.ndarray) -> np.ndarray:
        """Where bytes of the objects with the numbers `fd` are in this file. fd, place: int64 (n,), or one number."""
        if isinstance(fd, int):
            return place + self.bases[fd]
        numbers, which = np.unique(fd, return_inverse=True)
        return place + np.array([self.bases[int(number)] for number in numbers], np.int64)[which]


class _Fetch:
    """The tasks and reads of a fetch, counted from 0, and what has come of it.

    Arguments: see `Staging.submit`. futures: of the tasks.
    """

    def __init__(
        self, stage: Stage, task: Callable[[int], None], reads: Sequence[Reads], needs: np.ndarray,
        name_of: Callable[[int], str],
    ) -> None:  # fmt: skip
        self.stage, self.task, self.needs, self.name_of = stage, task, needs, name_of
        self.ends = np.cumsum([0, *(len(each.file) for each in reads)])  # of the reads of each task
        self.futures: list[Future] = [Future() for _ in reads]
        self.missing = self.ends[1:] - np.minimum(needs, self.ends[:-1])  # reads, of each task
        self.errors: dict[int, BaseException] = {}
        self.to_do = len(reads) + int(self.ends[-1])  # tasks and reads
        self.lock = threading.Lock()

    def waiting(self, k: int) -> range:
        """The tasks that need read k: from the one that has it to the last whose first need is not after it."""
        return range(int(np.searchsorted(self.ends, k, "right")) - 1, int(np.searchsorted(self.needs, k, "right")))

    def came(self, tasks: range) -> list[int]:
        """Notes that a read has come. Returns those of the tasks that wait for it, `tasks`, that miss nothing more."""
        with self.lock:
            self.missing[tasks.start : tasks.stop] -= 1
            return [i for i in tasks if not self.missing[i]]

    def failed(self, tasks: range, piece: int, error: Exception) -> None:
        """Notes that a read has failed, whose first piece is `piece`: its tasks will raise the error."""
        named = OSError(f"{self.name_of(piece)}: {error}")
        named.__cause__ = error
        self.errors.update(dict.fromkeys(tasks, named))

    def run(self, i: int) -> None:
        """Runs task i, unless it was cancelled or one of its reads failed; its future has the outcome."""
        if self.futures[i].set_running_or_notify_cancel():
            try:
                if i in self.errors:
                    raise self.errors[i]
                self.task(i)
                self.futures[i].set_result(None)
            except BaseException as error:
                self.futures[i].set_exception(error)

    def is_over(self) -> bool:
        """Notes that a task or a read is done. Returns whether it was the last."""
        with self.lock:
            self.to_do -= 1
            return not self.to_do


class Staging:
    """Reads ranges of objects in threads, CONNECTIONS at a time, in the order in which they are submitted.

    objects: by the numbers that stand for their file descriptors. In memory at a time are the bytes of the fetches in
    progress, as they are stored.
    """

    def __init__(self, objects: Mapping[int, Object]) -> None:
        self.objects = objects
        sizes = [-(-each.size // PAGE) * PAGE for each in objects.values()]
        self.bases = dict(zip(objects, np.cumsum([0, *sizes]).tolist(), strict=False))
        self.pool = ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="object")
        self.open: set[Stage] = set()

    def stage(self) -> Stage:
        """An empty stage for one fetch; `submit` must be called with it."""
        stage = Stage(self.bases)
        self.open.add(stage)
        return stage

    def submit(
        self,
        stage: Stage,
        decoders: ThreadPoolExecutor,
        task: Callable[[int], None],
        reads: Sequence[Reads],
        needs: np.ndarray,
        name_of: Callable[[int], str],
    ) -> list[Future]:
        """Runs task(i) in the pool `decoders` when its reads have come, for each i. Returns the futures of the tasks.

        reads[i] are the reads of task i. It also needs those from the read with the number needs[i] on, counted over
        all tasks, int64 (tasks,). A task raises the error of a read that failed, which begins with name_of(piece), the
        chunk or cell of the read's first piece.
        """
        fetch = _Fetch(stage, task, reads, needs, name_of)
        if not fetch.to_do:
            self._close(stage)
        for i in np.flatnonzero(fetch.missing == 0).tolist():
            decoders.submit(self._run, fetch, i)
        numbers = count()
        for each in reads:
            for numbers_of_read in zip(*(field.tolist() for field in each), strict=True):
                self.pool.submit(self._read, fetch, decoders, next(numbers), *numbers_of_read)
        return fetch.futures

    def _read(
        self, fetch: _Fetch, decoders: ThreadPoolExecutor, k: int, file: int, place: int, size: int, piece: int
    ) -> None:
        """Brings read k of a fetch into its stage, and submits the tasks that then miss nothing more."""
        tasks = fetch.waiting(k)
        try:
            if not all(fetch.futures[i].cancelled() for i in tasks):
                os.pwrite(fetch.stage.fd, self.objects[file].get(place, size), self.bases[file] + place)
        except Exception as error:
            fetch.failed(tasks, piece, error)
        for i in fetch.came(tasks):
            decoders.submit(self._run, fetch, i)
        self._done(fetch)

    def _run(self, fetch: _Fetch, i: int) -> None:
        try:
            fetch.run(i)
        finally:
            self._done(fetch)

    def _done(self, fetch: _Fetch) -> None:
        if fetch.is_over():
            self._close(fetch.stage)

    def measured(self) -> Disk:
        """What reads from the objects cost, by two trials: short reads and long ones, CONNECTIONS at a time."""
        large = max(self.objects.values(), key=lambda each: each.size)
        rng = np.random.default_rng()

        def seconds(n_bytes: int, rounds: int) -> float:
            n = min(n_bytes, large.size)
            places = rng.integers(0, large.size - n + 1, rounds * CONNECTIONS).tolist()
            start = time.perf_counter()
            list(self.pool.map(lambda place: large.read(place, n), places))
            return (time.perf_counter() - start) / len(places)

        seconds(1, 1)  # makes the connections
        a_read = seconds(SHORT, 2)
        return Disk(a_read, LONG / max(seconds(LONG, 1) - a_read, 1e-9), CONNECTIONS)

    def close(self) -> None:
        self.pool.shutdown(cancel_futures=True)
        for stage in list(self.open):
            self._close(stage)

    def _close(self, stage: Stage) -> None:
        if stage in self.open:
            self.open.discard(stage)
            os.close(stage.fd)
