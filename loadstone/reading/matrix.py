"""A CSR matrix on disk: any rows of it, gathered by several threads into one buffer."""

import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from copy import copy
from functools import cache
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.sparse import csr_matrix

from loadstone.reading.arrays import Array
from loadstone.reading.buffers import Memory
from loadstone.reading.densify import dense
from loadstone.reading.files import Files
from loadstone.reading.plan import Copies, of_rows, tasks
from loadstone.reading.validate import choice, count, row_ids
from loadstone.sampling.orders import aligned

NICENESS = 10  # of the threads that decode: who consumes the minibatches gets the processor first
PIECES_PER_TASK = 128  # at most: Python is asked for the next task so seldom
TASKS_PER_THREAD = 4  # at least, where there are pieces enough: threads should end together
TASKS_AHEAD = 8  # that the disk is told of before they run: more would push each other out of a small page cache


class Part(NamedTuple):
    """Some of the matrix's rows, in one file or group: indptr int64 of (rows + 1,)."""

    indptr: np.ndarray
    data: Array
    indices: Array


class Rows(NamedTuple):
    """CSR arrays of some rows: data float32 and indices int32 of (nnz,), indptr int64 of (rows + 1,)."""

    data: np.ndarray
    indices: np.ndarray
    indptr: np.ndarray

    def cut(self, start: int, stop: int) -> "Rows":
        """Rows start to stop: views, but for an indptr of its own, int32."""
        indptr = self.indptr[start : stop + 1]
        within = slice(indptr[0], indptr[-1])
        return Rows(self.data[within], self.indices[within], (indptr - indptr[0]).astype(np.int32))


class Gathering:
    """What is being read: `fetched` is whole once all tasks have ended."""

    def __init__(self, fetched: Any, tasks: list[Future], check: Callable[[], None]) -> None:
        self.fetched, self.tasks, self.check = fetched, tasks, check

    def result(self) -> Any:
        """Waits for all of it; raises what reading raised, and OSError where a file has changed meanwhile."""
        try:
            for task in self.tasks:
                task.result()
            self.check()
        except BaseException:
            self.cancel()
            raise
        return self.fetched

    def cancel(self) -> None:
        """Drops what has not begun and waits for the rest."""
        for task in self.tasks:
            task.cancel()
        for task in self.tasks:
            if not task.cancelled():
                task.exception()


class Matrix:
    """The rows of all parts, one after another; holds open files and threads until `close`.

    output: "csr" gives batches as scipy matrices that are views into the buffer, "dense" as arrays of their own; both
    float32, (rows, n_genes). threads: that decode; None: one a core. files: what `close` frees.
    Memory: 8 bytes a row and 17 bytes a chunk.
    """

    few_are_quick = True

    def __init__(
        self,
        parts: Sequence[Part],
        n_genes: int,
        *,
        output: Literal["csr", "dense"] = "csr",
        threads: int | None = None,
        files: Files,
    ) -> None:
        choice("output", output, ("csr", "dense"))
        self.threads = _cores() if threads is None else count("threads", threads)
        self.parts, self.n_genes, self.output, self.files = parts, n_genes, output, files
        self.offsets = np.cumsum([0, *(len(part.indptr) - 1 for part in parts)])
        self.pool = ThreadPoolExecutor(self.threads, thread_name_prefix="decode", initializer=_give_way)
        self.empty = cache(lambda rows: csr_matrix((rows, n_genes), dtype=np.float32))
        self.blocks: dict[int, np.ndarray | int] = {}
        self.memory = Memory()

    def __len__(self) -> int:
        return int(self.offsets[-1])

    def __getitem__(self, rows: np.ndarray) -> csr_matrix:
        """The rows of these ids, in this order; IndexError for what is no row's."""
        rows = row_ids(rows, len(self))
        return csr_matrix(tuple(self.gather(rows).result()), shape=(len(rows), self.n_genes))

    def aligned_blocks(self, block_size: int, rows: np.ndarray | None = None) -> np.ndarray | int:
        """What `BlockShuffled` takes: blocks as `sampling.aligned` makes them by the chunks of the indices.

        The indices take longest to decode. The size itself where no part is chunked. rows: of these ids only,
        ascending.
        """
        if all(part.indices.chunk is None for part in self.parts):
            return block_size
        if rows is not None:
            return self._aligned_blocks(block_size, rows)
        if block_size not in self.blocks:
            self.blocks[block_size] = self._aligned_blocks(block_size, None)
        return self.blocks[block_size]

    def _aligned_blocks(self, block_size: int, rows: np.ndarray | None) -> np.ndarray:
        cuts = self.offsets if rows is None else np.searchsorted(rows, self.offsets)
        starts = []
        for part, offset, first, last in zip(self.parts, self.offsets, cuts, cuts[1:], strict=False):
            begins = part.indptr[:-1] if rows is None else part.indptr[rows[first:last] - offset]
            if part.indices.chunk is None:
                starts.append(np.arange(first, last, block_size))
            elif len(begins):
                starts.append(first + aligned(begins, part.indices.chunk, block_size)[:-1])
        return np.concatenate([*starts, cuts[-1:]])

    def gather(self, rows: np.ndarray) -> Gathering:
        """Begins to read the rows of these int64 ids, which may repeat, in this order."""
        by_place = np.argsort(rows)
        ordered = rows[by_place]
        cuts = np.searchsorted(ordered, self.offsets)
        begin, end = np.empty(len(rows), np.int64), np.empty(len(rows), np.int64)
        for part, offset, first, last in zip(self.parts, self.offsets, cuts, cuts[1:], strict=False):
            local = ordered[first:last] - offset
            begin[first:last] = part.indptr[local]
            end[first:last] = part.indptr[local + 1]
        indptr = np.zeros(len(rows) + 1, np.int64)
        indptr[1:][by_place] = end - begin
        np.cumsum(indptr, out=indptr)
        target = indptr[by_place]
        found = Rows(self.memory.empty(indptr[-1], np.float32), self.memory.empty(indptr[-1], np.int32), indptr)
        indptrs = [part.indptr for part in self.parts]
        copies = [
            copied
            for arrays, out, n_genes in (
                ([part.indices for part in self.parts], found.indices, self.n_genes),
                ([part.data for part in self.parts], found.data, -1),
            )
            for copied in of_rows(arrays, indptrs, cuts, begin, end, target, out, n_genes)
        ]
        n_pieces = sum(len(each.of) for each in copies)
        size = max(1, min(n_pieces // (self.threads * TASKS_PER_THREAD), PIECES_PER_TASK))
        work = list(tasks(copies, size))
        for task in work[:TASKS_AHEAD]:
            _advise(task)
        return Gathering(found, [self.pool.submit(_copy, work, i) for i in range(len(work))], self.files.check)

    def batches(self, fetched: Rows, cuts: Sequence[int]) -> Iterator[csr_matrix | np.ndarray]:
        """The minibatches of what was gathered, from each of the cuts to the next."""
        for start, stop in pairwise(cuts):
            batch = fetched.cut(start, stop)
            yield self._csr(batch) if self.output == "csr" else dense(*batch, self.n_genes)

    def _csr(self, batch: Rows) -> csr_matrix:
        # A tenth of what scipy's constructor takes to see that the arrays fit.
        x = copy(self.empty(len(batch.indptr) - 1))
        x.data, x.indices, x.indptr = batch
        return x

    def close(self) -> None:
        self.pool.shutdown(cancel_futures=True)
        self.files.close()


def open_matrix(open_parts: Callable[[Files], list[Part]], n_genes: int, **options: Any) -> Matrix:
    """A `Matrix` of what `open_parts` opens; it enters in the files what is to be closed with it."""
    with Files() as files:
        parts = open_parts(files)
        files.check()
        warn_if_slow(parts)
        return Matrix(parts, n_genes, files=files, **options)


def warn_if_slow(parts: Sequence[Part]) -> None:
    """A warning for each reason why some arrays are read more slowly than they could be, naming the first of them."""
    reasons: dict[str, list[str]] = {}
    for part in parts:
        for array in (part.data, part.indices):
            if array.slow:
                reasons.setdefault(array.slow, []).append(array.name)
    for reason, names in reasons.items():
        others = f" (so are {len(names) - 1} other arrays)" if len(names) > 1 else ""
        warnings.warn(f"{names[0]} {reason}{others}", stacklevel=3)


def _give_way() -> None:
    if sys.platform == "linux":  # elsewhere all threads of a process have one priority
        thread = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, thread, max(NICENESS, os.getpriority(os.PRIO_PROCESS, thread)))


def _advise(task: list[Copies]) -> None:
    for copies in task:
        copies.advise()


def _copy(work: list[list[Copies]], i: int) -> None:
    if i + TASKS_AHEAD < len(work):
        _advise(work[i + TASKS_AHEAD])
    for copies in work[i]:
        copies.run()


def _cores() -> int:
    """That this process may run on: fewer than the machine's under an affinity mask."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
