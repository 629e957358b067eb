"""cellstream's archives of counts (`.csad`): a compressed frame for each cell, so that single cells can be read.

The container begins with MAGIC and ends with a trailer, which states where the index of its members lies.
"""

import json
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from loadstone.codecs.pfor import decode_cells
from loadstone.reading import validate
from loadstone.reading.csr_source import TASKS_PER_THREAD, CsrSource
from loadstone.reading.disk import Disk, are_cached
from loadstone.reading.files import Files, describing
from loadstone.reading.gathering import Gathering
from loadstone.reading.minibatches import Output
from loadstone.reading.reads import join
from loadstone.reading.row_starts import RowStarts
from loadstone.remote.urls import Storage, is_url

MAGIC, END = b"SHPK", b"SHPKEND\0"
TRAILER = struct.Struct("<8sHHQQQI")  # END, version, 0, offset and length of the index, end of the frames, CRC-32
TRAILER_BYTES = 64
CODEC = "pfordelta"
CELLS_PER_TASK = 512  # at most; a thread needs the GIL between two tasks


class Cells(CsrSource):
    """The cells of an archive, a source for `BlockLoader`.

    frames, values: where the frame of each cell begins in the file after `first`, in bytes, and where its values begin
    among all values. Other arguments: `CsrSource`.
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
        super().__init__(n_genes, output=output, threads=threads, disk=disk, files=files)
        self.path, self.fd = path, fd
        self.first, self.frames, self.values = first, frames, values

    def __len__(self) -> int:
        return len(self.values)

    @property
    def n_values(self) -> int:
        return self.values.total

    def aligned_blocks(self, block_size: int, rows: np.ndarray | None = None) -> int:
        """Returns `block_size` itself, because a cell is decoded alone."""
        return block_size

    def gather(self, rows: np.ndarray) -> Gathering:
        by_place = np.argsort(rows)
        ordered = rows[by_place]
        count = self.values[ordered + 1] - self.values[ordered]
        fetched, target = self._buffer(by_place, count)
        place = self.first + self.frames[ordered]
        size = self.first + self.frames[ordered + 1] - place
        n = max(1, min(CELLS_PER_TASK, len(rows) // (self.threads * TASKS_PER_THREAD)))
        tasks = [slice(start, start + n) for start in range(0, len(rows), n)]
        numbers = np.full(len(rows), self.fd)
        stage = self.staging.stage() if self.staging else None
        # A hint for each cell would take longer than to read it from the page cache.
        if not stage and len(rows) and are_cached(self.fd, place):
            numbers = numbers[:0]
        reads = [join(numbers[task], place[task], size[task], self.disk) for task in tasks]
        fd, local = (stage.fd, stage.place(self.fd, place)) if stage else (self.fd, place)

        def decode(i: int) -> None:
            task = tasks[i]
            n_decoded = decode_cells(
                fd, local[task], size[task], count[task], target[task], fetched.data, fetched.indices, self.n_genes
            )
            if n_decoded < len(place[task]):
                self.files.check()
                raise ValueError(f"{self.path}: the frame of cell {ordered[task][n_decoded]:,} is damaged")

        if self.staging and stage:
            reads = [each._replace(piece=each.piece + task.start) for each, task in zip(reads, tasks, strict=True)]
            needs = np.cumsum([0, *(len(each.file) for each in reads)])[:-1]
            name_of = lambda i: f"{self.path}, cell {ordered[i]:,}"  # noqa: E731
            futures = self.staging.submit(stage, self.pool, decode, reads, needs, name_of)
        else:
            futures = self.ahead.submit(self.pool, decode, reads)
        return Gathering(fetched, futures, self.files.check)


def open_csad(
    path: Path | str,
    *,
    output: Output = "csr",
    threads: int | None = None,
    disk: Disk | None = None,
    storage: Storage | None = None,
) -> Cells:
    """Opens an archive of counts that cellstream wrote with `layout="cell"`, as a source for `BlockLoader`.

    The library cellstream is not needed. path: of a file, or the URL of an object. storage: for a URL, see `open_h5ad`.
    output: "csr" or "dense", the form of the minibatches, float32 (rows, genes);
    "dense_uint16" is for counts up to 65,535. threads: the number of decoding threads; None: one per core. disk: what
    reads cost; None: it is measured with a few reads, see `reading.disk`. Reads 16 bytes per cell, and keeps 8.

    Raises OSError if the file is missing or unreadable. Raises ValueError if it is damaged, if it holds other values
    than counts, and for invalid arguments.
    """
    with Files() as files:
        if storage and not is_url(path):
            raise ValueError(f"storage is for URLs, and {path} is a file")
        [fd] = files.open_objects([str(path)], storage or {}) if is_url(path) else [files.open(path)]
        with describing(path):
            members = _members(path, fd, files)
            manifest = json.loads(_read(files, fd, *members["manifest.json"]))
            if manifest.get("layout") != "cell" or manifest.get("codec") != CODEC:
                raise ValueError(
                    f"{path} holds {manifest.get('layout')} by {manifest.get('codec')}; "
                    f"what can be read are cells by {CODEC}, which cellstream writes for counts"
                )
            n_cells, n_genes = validate.shape(str(path), (manifest["n_obs_total"], manifest["n_vars"]))
            start, n_bytes = members["x_payload"]
            (frames, _), (values, most) = (
                _starts(path, fd, files, name, members[name], n_cells, last)
                for name, last in (("x_offsets", n_bytes), ("x_indptr", manifest["total_nnz"]))
            )
            if most > n_genes:
                raise ValueError(f"{path}: a cell has more values than there are genes")
        files.check()
        return Cells(path, fd, start, frames, values, n_genes, output=output, threads=threads, disk=disk, files=files)


def _members(path: Path | str, fd: int, files: Files) -> dict[str, tuple[int, int]]:
    """The place and the length in bytes of each member of the container, by name."""
    size = files.size(fd)
    if size < TRAILER_BYTES or _read(files, fd, 0, len(MAGIC)) != MAGIC:
        raise ValueError(f"{path} is no archive of cellstream")
    end, _, _, place, length, _, checksum = TRAILER.unpack(_read(files, fd, size - TRAILER_BYTES, TRAILER.size))
    if end != END or place + length > size:
        raise ValueError(f"{path} is truncated: its trailer is missing")
    index = _read(files, fd, place, length)
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
    path: Path | str, fd: int, files: Files, name: str, place: tuple[int, int], n_cells: int, last: Any
) -> tuple[RowStarts, int]:
    """(the member x_offsets or x_indptr, the longest step in it).

    ValueError unless it begins with 0, never decreases and ends with `last`.
    """
    if place[1] != 8 * (n_cells + 1):
        raise ValueError(f"{path}: {name} has {place[1]:,} bytes, but {n_cells:,} cells need {8 * (n_cells + 1):,}")
    starts = np.frombuffer(_read(files, fd, *place), "<i8").copy()
    checked = validate.row_starts(f"{path}, {name}", starts, int(last))
    return checked, int(np.diff(starts).max(initial=0))


def _read(files: Files, fd: int, place: int, size: int) -> bytes:
    return files.read_whole(fd, size, place)
