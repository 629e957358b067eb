"""Announces reads to the operating system ahead of the tasks that need them, so that a disk serves many at a time."""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import RLock

from loadstone.codecs.kernel import advise
from loadstone.reading.reads import Reads

TASKS_AHEAD = 8  # of those that run; more would evict each other from a small page cache


class Ahead:
    """The tasks of all fetches of a source, in one line: reads are announced in the order in which tasks will run.

    threads: the number of threads that run the tasks.

    A disk serves reads in the order of their announcement. If those of the next fetch came before the last ones of the
    current fetch, this would be complete only when the next is.
    """

    def __init__(self, threads: int) -> None:
        self.lock = RLock()  # a task that has finished calls `_finished` from within `_announce`
        self.waiting: deque[tuple[Future, Reads]] = deque()
        self.announced, self.most = 0, TASKS_AHEAD + threads  # of tasks that have not finished

    def submit(self, pool: ThreadPoolExecutor, task: Callable[[int], None], reads: list[Reads]) -> list[Future]:
        """Runs task(i) in the pool for each i, and announces reads[i] before it. Returns the futures of the tasks."""
        futures = [pool.submit(task, i) for i in range(len(reads))]
        with self.lock:
            self.waiting.extend(zip(futures, reads, strict=True))
        self._announce()
        return futures

    def _announce(self) -> None:
        with self.lock:
            while self.waiting and self.announced < self.most:
                future, reads = self.waiting.popleft()
                if not future.done():
                    advise(reads.file, reads.place, reads.size)
                    self.announced += 1
                    future.add_done_callback(self._finished)

    def _finished(self, _: Future) -> None:
        with self.lock:
            self.announced -= 1
        self._announce()
