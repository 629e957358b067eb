"""A fetch in progress."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any


class Gathering:
    """A fetch in progress. The tasks, which run in threads, write the rows into `fetched`.

    `fetched` is complete when all tasks have finished. check: called after the tasks; raises OSError if a file has
    changed since it was opened.
    """

    def __init__(self, fetched: Any, tasks: list[Future], check: Callable[[], None]) -> None:
        self.fetched, self.tasks, self.check = fetched, tasks, check

    def result(self) -> Any:
        """Waits for all tasks and returns `fetched`. Raises the error of the first task that failed, or of `check`."""
        try:
            for task in self.tasks:
                task.result()
            self.check()
        except BaseException:
            self.cancel()
            raise
        return self.fetched

    def cancel(self) -> None:
        """Cancels the tasks that have not started, and waits for the others to finish. Raises none of their errors."""
        for task in self.tasks:
            task.cancel()
        for task in self.tasks:
            if not task.cancelled():
                task.exception()
