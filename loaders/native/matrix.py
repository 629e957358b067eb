"""A CSR matrix on disk: any rows of it, gathered by several threads into one buffer."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from loaders.native.arrays import Array, Pieces, copy_rows
from loaders.native.sampling import aligned

PIECES_PER_TASK = 8
ROW_BYTES = 8  # of an entry: a float32 value and an int32 index


class Part(NamedTuple):
    """Some of the matrix's rows, in one file or group: indptr int64 of (rows + 1,), and what frees the files."""

    indptr: np.ndarray
    data: Array
    indices: Array
    close: Callable[[], None]


class Rows(NamedTuple):
    """CSR arrays of some rows: data float32 and indices int32 of (nnz,), indptr int64 of (rows + 1,)."""

    data: np.ndarray
    indices: np.ndarray
    indptr: np.ndarray

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self)

    def cut(self, start: int, stop: int) -> "Rows":
        """Rows start to stop: views, but for an indptr of its own, int32."""
        indptr = self.indptr[start : stop + 1]
        within = slice(indptr[0], indptr[-1])
        return Rows(self.data[within], self.indices[within], (indptr - indptr[0]).astype(np.int32))


class Gathering:
    """Rows that are being read."""

    def __init__(self, rows: Rows, tasks: list[Future]) -> None:
        self.rows, self.tasks = rows, tasks

    def result(self) -> Rows:
        """Waits for all of it; raises what reading raised."""
        try:
            for task in self.tasks:
                task.result()
        except BaseException:
            self.cancel()
            raise
        return self.rows

    def cancel(self) -> None:
        """Drops what has not begun and waits for the rest."""
        for task in self.tasks:
            task.cancel()
        for task in self.tasks:
            if not task.cancelled():
                task.exception()


class Matrix:
    """The rows of all parts, one after another; holds open files and threads until `close`.

    Memory: 8 bytes a row and 16 bytes a chunk.
    """

    def __init__(self, parts: Sequence[Part], threads: int) -> None:
        self.parts = parts
        self.offsets = np.cumsum([0, *(len(part.indptr) - 1 for part in parts)])
        self.pool = ThreadPoolExecutor(threads, thread_name_prefix="decode")

    def __len__(self) -> int:
        return int(self.offsets[-1])

    def aligned_blocks(self, block_size: int) -> np.ndarray | int:
        """What `BlockShuffled` takes: blocks as `sampling.aligned` makes them by the chunks of the indices.

        The indices take longest to decode. The size itself where no part is chunked.
        """
        if all(part.indices.chunk is None for part in self.parts):
            return block_size
        starts = [
            np.arange(0, len(part.indptr), block_size)  # may end with the number of rows, as an aligned one does
            if part.indices.chunk is None
            else aligned(part.indptr[:-1], part.indices.chunk, block_size)
            for part in self.parts
        ]
        shifted = [offset + some for offset, some in zip(self.offsets.tolist(), starts, strict=False)]
        return np.unique(np.concatenate([*shifted, [len(self)]]))

    def gather(self, rows: np.ndarray) -> Gathering:
        """Begins to read the rows of these int64 ids, which may repeat, in this order."""
        by_place = np.argsort(rows)
        ordered = rows[by_place]
        cuts = np.searchsorted(ordered, self.offsets)
        begin, end = np.empty(len(rows), np.int64), np.empty(len(rows), np.int64)
        touched = [i for i in range(len(self.parts)) if cuts[i] < cuts[i + 1]]
        for i in touched:
            local = ordered[cuts[i] : cuts[i + 1]] - self.offsets[i]
            begin[cuts[i] : cuts[i + 1]] = self.parts[i].indptr[local]
            end[cuts[i] : cuts[i + 1]] = self.parts[i].indptr[local + 1]
        indptr = np.zeros(len(rows) + 1, np.int64)
        indptr[1:][by_place] = end - begin
        np.cumsum(indptr, out=indptr)
        target = indptr[by_place]
        found = Rows(np.empty(indptr[-1], np.float32), np.empty(indptr[-1], np.int32), indptr)
        tasks = []
        for i in touched:
            mine = slice(cuts[i], cuts[i + 1])
            for array, out in ((self.parts[i].indices, found.indices), (self.parts[i].data, found.data)):
                pieces = array.pieces(begin[mine], end[mine])
                for k in range(0, len(pieces.start), PIECES_PER_TASK):
                    some = Pieces(*(field[k : k + PIECES_PER_TASK] for field in pieces))
                    tasks.append(self.pool.submit(copy_rows, array, some, begin[mine], end[mine], target[mine], out))
        return Gathering(found, tasks)

    def close(self) -> None:
        self.pool.shutdown(cancel_futures=True)
        for part in self.parts:
            part.close()
