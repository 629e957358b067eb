"""cellstream's archives of counts (`.csad`): a compressed frame for each cell, so that single cells can be read.

The container begins with MAGIC and ends with a trailer, which states where the index of its members lies.
"""

import json
import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from loadstone.codecs.pfor import decode_cells
from loadstone.reading import validate
from loadstone.reading.ahead import Ahead
from loadstone.reading.buffers import Memory
from loadstone.reading.disk import Disk, are_cached, measured
from loadstone.reading.files import Files, describing
from loadstone.reading.matrix import TASKS_PER_THREAD, Gathering
from loadstone.reading.minibatches import Minibatches, Output, Rows
from loadstone.reading.reads import join
from loadstone.reading.row_starts import RowStarts
from loadstone.reading.threads import decoding
from loadstone.reading.validate import row_ids

MAGIC, END = b"SHPK", b"SHPKEND\0"
TRAILER = struct.Struct("<8sHHQQQI")  # END, version, 0, offset and length of the index, end of the frames, CRC-32
TRAILER_BYTES = 64
CODEC = "pfordelta"
CELLS_PER_TASK = 512  # at most; a thread needs the GIL between two tasks


class Cells:
    """The cells of an archive, a source for `BlockLoader`. `close` ends its threads and closes the file.

    frames, values: where the frame of each cell begins in the file after `first`, in bytes, and where its values begin
    among all values. output, threads, disk: see `open_csad`.
    """

    def __init__(
        self,
        path: Path | str,
        fd: int,
        first: int,
        frames: RowStarts,
        values: RowStarts,
        n_genes: int,
        *,
        output: Output,
        threads: int | None,
        disk: Disk | None,
        files: Files,
    ) -> None:
        self.minibatches = Minibatches(n_genes, output)
        self.path, self.fd, self.n_genes, self.files = path, fd, n_genes, files
        self.first, self.frames, self.values = first, frames, values
        self.disk = disk or measured(files.sizes())
        self.pool, self.threads = decoding(threads)
        self.ahead = Ahead(self.threads)
        self.memory = Memory()

    def __len__(self) -> int:
        return len(self.values)

    @property
    def row_bytes(self) -> float:
        """The mean size in bytes of a row as CSR, float32 and int32."""
        return 8 * self.values.total / max(1, len(self)) + 8

    def __getitem__(self, rows: np.ndarray) -> csr_matrix:
        """The rows with these ids, in this order, float32 (len(rows), n_genes); CSR for any `output`.

        IndexError for an id that is not a whole number from 0 to len - 1.
        """
        rows = row_ids(rows, len(self))
        return csr_matrix(tuple(self.gather(rows).result()), shape=(len(rows), self.n_genes))

    def aligned_blocks(self, block_size: int, rows: np.ndarray | None = None) -> int:
        """Returns `block_size` itself, because a cell is decoded alone."""
        return block_size

    def gather(self, rows: np.ndarray) -> Gathering:
        """Starts to read the rows with these ids, in this order. `Gathering.result` returns them as `Rows`.

        rows: int64 (n,); ids may repeat. The ids are not checked.
        """
        by_place = np.argsort(rows)
        ordered = rows[by_place]
        count = self.values[ordered + 1] - self.values[ordered]
        indptr = np.zeros(len(rows) + 1, np.int64)
        indptr[1:][by_place] = count
        np.cumsum(indptr, out=indptr)
        fetched = Rows(self.memory.empty(indptr[-1], np.float32), self.memory.empty(indptr[-1], np.int32), indptr)
        place = self.first + self.frames[ordered]
        size = self.first + self.frames[ordered + 1] - place
        target = indptr[by_place]
        n = max(1, min(CELLS_PER_TASK, len(rows) // (self.threads * TASKS_PER_THREAD)))
        tasks = [slice(start, start + n) for start in range(0, len(rows), n)]
        fd = np.full(len(rows), self.fd)
        if len(rows) and are_cached(self.fd, place):  # a hint for each cell would take longer than to read it
            fd = fd[:0]
        reads = [join(fd[task], place[task], size[task], self.disk) for task in tasks]

        def decode(i: int) -> None:
            task = tasks[i]
            n_decoded = decode_cells(
                self.fd, place[task], size[task], count[task], target[task], fetched.data, fetched.indices, self.n_genes
            )
            if n_decoded < len(place[task]):
                self.files.check()
                raise ValueError(f"{self.path}: the frame of cell {ordered[task][n_decoded]:,} is damaged")

        return Gathering(fetched, self.ahead.submit(self.pool, decode, reads), self.files.check)

    def batches(self, fetched: Rows, cuts: Sequence[int]) -> Iterator[csr_matrix | np.ndarray]:
        """Yields the minibatches of a fetch. Minibatch i has the rows cuts[i] to cuts[i + 1] of the fetch."""
        yield from self.minibatches.cut(fetched, cuts)

    def close(self) -> None:
        self.pool.shutdown(cancel_futures=True)
        self.files.close()


def open_csad(
    path: Path | str,
    *,
    output: Output = "csr",
    threads: int | None = None,
    disk: Disk | None = None,
) -> Cells:
    """Opens an archive of counts that cellstream wrote with `layout="cell"`, as a source for `BlockLoader`.

    The library cellstream is not needed. output: "csr" or "dense", the form of the minibatches, float32 (rows,
    genes); "dense_uint16" is for counts up to 65,535.
    threads: the number of decoding threads; None: one per core. disk: what reads cost; None: it is measured with a few
    reads, see `reading.disk`. Reads 16 bytes per cell, and keeps 8.

    Raises OSError if the file is missing or unreadable. Raises ValueError if it is damaged, if it holds other values
    than counts, and for invalid arguments.
    """
    with Files() as files:
        fd = files.open(path)
        with describing(path):
            members = _members(path, fd, files.size(fd))
            manifest = json.loads(_read(path, fd, *members["manifest.json"]))
            if manifest.get("layout") != "cell" or manifest.get("codec") != CODEC:
                raise ValueError(
                    f"{path} holds {manifest.get('layout')} by {manifest.get('codec')}; "
                    f"what can be read are cells by {CODEC}, which cellstream writes for counts"
                )
            n_cells, n_genes = validate.shape(str(path), (manifest["n_obs_total"], manifest["n_vars"]))
            start, n_bytes = members["x_payload"]
            (frames, _), (values, most) = (
                _starts(path, fd, name, members[name], n_cells, last)
                for name, last in (("x_offsets", n_bytes), ("x_indptr", manifest["total_nnz"]))
            )
            if most > n_genes:
                raise ValueError(f"{path}: a cell has more values than there are genes")
        files.check()
        return Cells(path, fd, start, frames, values, n_genes, output=output, threads=threads, disk=disk, files=files)


def _members(path: Path | str, fd: int, size: int) -> dict[str, tuple[int, int]]:
    """The place and the length in bytes of each member of the container, by name."""
    if size < TRAILER_BYTES or _read(path, fd, 0, len(MAGIC)) != MAGIC:
        raise ValueError(f"{path} is no archive of cellstream")
    end, _, _, place, length, _, checksum = TRAILER.unpack(_read(path, fd, size - TRAILER_BYTES, TRAILER.size))
    if end != END or place + length > size:
        raise ValueError(f"{path} is truncated: its trailer is missing")
    index = _read(path, fd, place, length)
    if zlib.crc32(index) != checksum:
        raise ValueError(f"{path} is damaged: the checksum of its index is wrong")
    members: dict[str, tuple[int, int]] = {}
    for member in json.loads(index)["members"]:
        at, n_bytes = int(member["offset"]), int(member["length"])
        if at < 0 or n_bytes < 0 or at + n_bytes > size:
            raise ValueError(f"{path}: {member['name']} does not lie within the file")
        members[member["name"]] = at, n_bytes
    return members


def _starts(
    path: Path | str, fd: int, name: str, place: tuple[int, int], n_cells: int, last: Any
) -> tuple[RowStarts, int]:
    """(the member x_offsets or x_indptr, the longest step in it).

    ValueError unless it begins with 0, never decreases and ends with `last`.
    """
    if place[1] != 8 * (n_cells + 1):
        raise ValueError(f"{path}: {name} has {place[1]:,} bytes, but {n_cells:,} cells need {8 * (n_cells + 1):,}")
    starts = np.frombuffer(_read(path, fd, *place), "<i8").copy()
    checked = validate.row_starts(f"{path}, {name}", starts, int(last))
    return checked, int(np.diff(starts).max(initial=0))


def _read(path: Path | str, fd: int, place: int, size: int) -> bytes:
    """`size` bytes at offset `place`. OSError if there are fewer."""
    parts, end = [], place + size
    while place < end:
        part = os.pread(fd, end - place, place)
        if not part:
            raise OSError(f"{path} has fewer bytes than its index states")
        parts.append(part)
        place += len(part)
    return b"".join(parts)
