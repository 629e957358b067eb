"""The threads that decode."""

import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

from loadstone.reading.validate import count

NICENESS = 10  # of the decoding threads, so that the thread that consumes minibatches has priority


def decoding(threads: int | None) -> tuple[ThreadPoolExecutor, int]:
    """(threads that decode, their number). None: one for each core that the process may use. ValueError for others than
    a whole number of at least 1."""
    n = _cores() if threads is None else count("threads", threads)
    return ThreadPoolExecutor(n, thread_name_prefix="decode", initializer=_give_way), n


def _give_way() -> None:
    if sys.platform == "linux":  # on other systems the niceness cannot be set for a single thread
        thread = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, thread, max(NICENESS, os.getpriority(os.PRIO_PROCESS, thread)))


def _cores() -> int:
    """The number of cores on which this process may run, taking its CPU affinity mask into account."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
