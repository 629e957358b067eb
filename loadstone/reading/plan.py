"""The plan of a fetch: which pieces of the arrays are read and where their rows are copied, divided into tasks."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from loadstone.codecs.kernel import copy_pieces, scatter
from loadstone.codecs.registry import is_compiled
from loadstone.reading.arrays import Array, Pieces
from loadstone.reading.disk import Disk
from loadstone.reading.reads import Reads, join
from loadstone.reading.row_starts import RowStarts
from loadstone.reading.validate import genes
from loadstone.remote.staging import Stage


class Copies(NamedTuple):
    """Pieces of arrays to read, and the places in `out` to which their rows are copied.

    Either the compiled loop reads all of these pieces, or it reads none of them.

    of: for each piece, the index of its array in `arrays`. Row i of the fetch has the elements begin[i] to end[i] of
    its array; they are copied to out[target[i]] and the places after it. n_genes: the values are gene indices and must
    be 0 to n_genes - 1; -1: they are not gene indices. starts: for each array, where its rows begin, used
    only for error messages.
    """

    arrays: Sequence[Array]
    starts: Sequence[RowStarts]
    of: np.ndarray
    pieces: Pieces
    begin: np.ndarray
    end: np.ndarray
    target: np.ndarray
    out: np.ndarray
    n_genes: int

    def cut(self, which: slice | np.ndarray) -> "Copies":
        return self._replace(of=self.of[which], pieces=Pieces(*(field[which] for field in self.pieces)))

    def run(self) -> None:
        """Reads the pieces and copies their rows.

        OSError if a piece cannot be read, ValueError for an invalid gene index; both name the array and the place.
        """
        left = self
        codec = self.arrays[self.of[0]].codec
        if codec and len(self.pieces.fd):
            # Pieces that failed are read again below, as whole chunks. Either too few bytes of the chunk were read, or
            # the chunk is damaged.
            left = self.cut(copy_pieces(codec.compiled, codec.dtype, *self[3:]))
        for i, start, stop, first, last in zip(left.of, *left.pieces[:4], strict=True):
            values = self.arrays[i].read(int(start), int(stop))
            rows = slice(first, last)
            begin, end = self.begin[rows], self.end[rows]
            if self.n_genes >= 0:
                array = self.arrays[i]
                genes(array.name, array.chunk, self.starts[i], values, self.n_genes, int(start), begin, end)
            if not is_compiled(values.dtype):
                values = values.astype(self.out.dtype)
            scatter(values, start, begin, end, self.target[rows], self.out, -1)


def of_rows(
    arrays: Sequence[Array],
    starts: Sequence[RowStarts],
    cuts: np.ndarray,
    begin: np.ndarray,
    end: np.ndarray,
    target: np.ndarray,
    out: np.ndarray,
    n_genes: int,
) -> Iterator[Copies]:
    """Yields the `Copies` of a fetch. Rows cuts[i] to cuts[i + 1] of the fetch lie in arrays[i].

    Pieces of several arrays are in the same `Copies` if the compiled loop reads them with the same codec and dtype. The
    other arguments: see `Copies`.
    """
    groups: dict[object, list[tuple[np.ndarray, Pieces]]] = {}
    for i in np.flatnonzero(np.diff(cuts)).tolist():
        rows = slice(cuts[i], cuts[i + 1])
        pieces = arrays[i].pieces(begin[rows], end[rows])
        pieces = pieces._replace(first=pieces.first + cuts[i], last=pieces.last + cuts[i])
        codec = arrays[i].codec
        way = (codec.compiled, codec.dtype) if codec and len(pieces.fd) else i
        groups.setdefault(way, []).append((np.full(len(pieces.start), i), pieces))
    for group in groups.values():
        of, pieces = zip(*group, strict=True)
        together = Pieces(*(np.concatenate(fields) for fields in zip(*pieces, strict=True)))
        yield Copies(arrays, starts, np.concatenate(of), together, begin, end, target, out, n_genes)


def tasks(copies: Sequence[Copies], size: int) -> Iterator[list[Copies]]:
    """Divides the copies into tasks of `size` pieces each; the last task may have fewer."""
    task, room = [], size
    for each in copies:
        start = 0
        while start < len(each.of):
            stop = min(start + room, len(each.of))
            task.append(each.cut(slice(start, stop)))
            room -= stop - start
            start = stop
            if not room:
                yield task
                task, room = [], size
    if task:
        yield task


def reads_of(work: Sequence[list[Copies]], disk: Disk) -> tuple[list[Reads], np.ndarray]:
    """(for each task, the reads that bring the pieces of the compiled loop; for each task, the first read it needs).

    A read is of the first task it serves. Reads are counted over all tasks: int64 (tasks,).
    """
    counts = [sum(len(copies.pieces.fd) for copies in task) for task in work]
    pieces = [copies.pieces for task in work for copies in task]
    fd, place, size = (np.concatenate([getattr(each, name) for each in pieces]) for name in ("fd", "place", "size"))
    reads = join(fd, place, size, disk)
    first = np.cumsum([0, *counts])
    cuts = np.searchsorted(reads.piece, first)
    needs = np.maximum(np.searchsorted(reads.piece, first[:-1], "right") - 1, 0)
    return [Reads(*(field[a:b] for field in reads)) for a, b in pairwise(cuts.tolist())], needs


def staged(work: Sequence[list[Copies]], stage: Stage) -> list[list[Copies]]:
    """The same work, but the compiled loop reads its pieces from the stage."""
    return [[copies._replace(pieces=_on(stage, copies.pieces)) for copies in task] for task in work]


def _on(stage: Stage, pieces: Pieces) -> Pieces:
    return pieces._replace(fd=np.full_like(pieces.fd, stage.fd), place=stage.place(pieces.fd, pieces.place))


def chunk_of(work: Sequence[list[Copies]], number: int) -> str:
    """The array and the chunk of the piece with this number, counted over all tasks, for messages."""
    for copies in (copies for task in work for copies in task):
        if number < len(copies.pieces.fd):
            array = copies.arrays[copies.of[number]]
            start = int(copies.pieces.start[number])
            return array.name if array.chunk is None else f"{array.name}, chunk {start // array.chunk}"
        number -= len(copies.pieces.fd)
    raise IndexError(number)
