"""A CSR matrix on disk: several threads read the requested rows into one buffer."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from loadstone.reading.arrays import Array
from loadstone.reading.csr_source import TASKS_PER_THREAD, CsrSource
from loadstone.reading.disk import Disk
from loadstone.reading.files import Files
from loadstone.reading.gathering import Gathering
from loadstone.reading.minibatches import Output
from loadstone.reading.plan import chunk_of, of_rows, reads_of, staged, tasks
from loadstone.reading.row_starts import RowStarts
from loadstone.sampling.orders import aligned, chunk_starts

PIECES_PER_TASK = 128  # at most; a thread needs the GIL between two tasks


class Part(NamedTuple):
    """The CSR matrix in one file or zarr group.

    starts: where the rows begin, in memory. data, indices: arrays on disk, (nnz,).
    """

    starts: RowStarts
    data: Array
    indices: Array


class Matrix(CsrSource):
    """A CSR matrix on disk: the rows of all parts, one part after another.

    Other arguments: `CsrSource`. Memory besides the fetches: 4 bytes per row, and 17 bytes per chunk that the compiled
    loop reads; 8 more per chunk of `indices` once blocks follow the chunks.
    """

    # These are attributes so that an ablation can replace them for a single matrix.
    pieces_per_task = PIECES_PER_TASK
    divide = staticmethod(tasks)

    def __init__(
        self,
        parts: Sequence[Part],
        n_genes: int,
        *,
        output: Output = "csr",
        threads: int | None = None,
        disk: Disk | None = None,
        files: Files,
    ) -> None:
        super().__init__(n_genes, output=output, threads=threads, disk=disk, files=files)
        self.parts = parts
        self.offsets = np.cumsum([0, *(len(part.starts) for part in parts)])
        # The rows of the last call of `aligned_blocks`, and their chunks: block sizes are tried on the same rows.
        self.chunks: tuple[np.ndarray | None, np.ndarray, list[np.ndarray | None]] | None = None

    def __len__(self) -> int:
        return int(self.offsets[-1])

    @property
    def n_values(self) -> int:
        return sum(part.starts.total for part in self.parts)

    def aligned_blocks(self, block_size: int, rows: np.ndarray | None = None) -> np.ndarray | int:
        """Blocks for `BlockShuffled` that follow the chunks of `indices`, the array that takes longest to decode.

        rows: the ids of the selected rows, int64, ascending; None: all rows. If any part has chunked indices, returns
        the position among the selected rows at which each block begins, followed by the number of selected rows: int64
        (blocks + 1,), see `sampling.orders.aligned`. Otherwise returns `block_size` itself.
        """
        if all(part.indices.chunk is None for part in self.parts):
            return block_size
        if self.chunks is None or self.chunks[0] is not rows:
            self.chunks = rows, *self._chunk_starts(rows)
        _, cuts, chunks = self.chunks
        starts = [
            np.arange(first, last, block_size) if of_part is None else first + aligned(of_part, block_size)[:-1]
            for of_part, first, last in zip(chunks, cuts, cuts[1:], strict=False)
            if first < last
        ]
        return np.concatenate([*starts, cuts[-1:]])

    def _chunk_starts(self, rows: np.ndarray | None) -> tuple[np.ndarray, list[np.ndarray | None]]:
        """(where each part begins among the selected rows, followed by their number; the `chunk_starts` of each part).

        The latter is None for a part whose indices have no chunks.
        """
        cuts = self.offsets if rows is None else np.searchsorted(rows, self.offsets)
        chunks: list[np.ndarray | None] = []
        for part, offset, first, last in zip(self.parts, self.offsets, cuts, cuts[1:], strict=False):
            if part.indices.chunk is None:
                chunks.append(None)
            else:
                begins = part.starts.whole() if rows is None else part.starts[rows[first:last] - offset]
                chunks.append(chunk_starts(begins, part.indices.chunk))
        return cuts, chunks

    def gather(self, rows: np.ndarray) -> Gathering:
        by_place = np.argsort(rows)
        ordered = rows[by_place]
        cuts = np.searchsorted(ordered, self.offsets)
        begin, end = np.empty(len(rows), np.int64), np.empty(len(rows), np.int64)
        for part, offset, first, last in zip(self.parts, self.offsets, cuts, cuts[1:], strict=False):
            local = ordered[first:last] - offset
            begin[first:last] = part.starts[local]
            end[first:last] = part.starts[local + 1]
        fetched, target = self._buffer(by_place, end - begin)
        starts = [part.starts for part in self.parts]
        copies = [
            copied
            for arrays, out, n_genes in (
                ([part.indices for part in self.parts], fetched.indices, self.n_genes),
                ([part.data for part in self.parts], fetched.data, -1),
            )
            for copied in of_rows(arrays, starts, cuts, begin, end, target, out, n_genes)
        ]
        n_pieces = sum(len(each.of) for each in copies)
        size = max(1, min(n_pieces // (self.threads * TASKS_PER_THREAD), self.pieces_per_task))
        work = list(self.divide(copies, size))
        reads, needs = reads_of(work, self.disk) if work else ([], np.empty(0, np.int64))
        stage = self.staging.stage() if self.staging else None
        local = staged(work, stage) if stage else work

        def copy(i: int) -> None:
            for copies in local[i]:
                copies.run()

        if self.staging and stage:
            tasks = self.staging.submit(stage, self.pool, copy, reads, needs, lambda piece: chunk_of(work, piece))
        else:
            tasks = self.ahead.submit(self.pool, copy, reads)
        return Gathering(fetched, tasks, self.files.check)


def open_matrix(open_parts: Callable[[Files], list[Part]], n_genes: int, **options: Any) -> Matrix:
    """A `Matrix` of the parts that `open_parts(files)` returns. options: `output`, `threads` and `disk` of `Matrix`.

    `open_parts` opens its files in `files`. `Matrix.close` closes them; if an error is raised here, they are closed.
    """
    with Files() as files:
        parts = open_parts(files)
        files.check()
        warn_if_slow(parts)
        return Matrix(parts, n_genes, files=files, **options)


def warn_if_slow(parts: Sequence[Part]) -> None:
    """Warns once for each reason why arrays are read more slowly than possible, naming the first array concerned."""
    reasons: dict[str, list[str]] = {}
    for part in parts:
        for array in (part.data, part.indices):
            if array.slow:
                reasons.setdefault(array.slow, []).append(array.name)
    for reason, names in reasons.items():
        others = f" (so are {len(names) - 1} other arrays)" if len(names) > 1 else ""
        warnings.warn(f"{names[0]} {reason}{others}", stacklevel=3)
