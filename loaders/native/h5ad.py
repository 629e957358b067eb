"""How rows are read: CSR in h5ad files, unconverted.

HDF5 is asked once where the compressed chunks lie. After that each chunk that holds wanted rows is read straight
from the file, inflated by ISA-L and copied row by row to its place in the shuffled buffer while it is still in the
processor's cache, by several threads, none of which holds Python's lock or HDF5's for long.
"""

import os
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import h5py
import numba
import numpy as np
from isal import isal_zlib

CHUNKS_PER_TASK = 8
PLAIN_SLICE = 65_536  # elements read at a time from an array that is not chunked


class Rows(NamedTuple):
    """CSR arrays of some rows: data float32 and indices int32 of (nnz,), indptr int64 of (rows + 1,)."""

    data: np.ndarray
    indices: np.ndarray
    indptr: np.ndarray


class H5adStore:
    """The CSR matrices X of h5ad files, as one matrix; holds open files until `close`.

    Memory: 8 bytes a cell (indptr) and 16 bytes a chunk.
    """

    def __init__(self, paths: Sequence[Path], threads: int) -> None:
        self.files = [_File(path) for path in paths]
        self.offsets = np.cumsum([0, *(len(file.indptr) - 1 for file in self.files)])
        self.pool = ThreadPoolExecutor(threads, thread_name_prefix="inflate")

    def read(self, rows: np.ndarray) -> Rows:
        """The rows with these ids, in this order; OSError naming file and chunk where one cannot be read."""
        by_place = np.argsort(rows)
        ordered = rows[by_place]
        cuts = np.searchsorted(ordered, self.offsets)
        begin, end = np.empty(len(rows), np.int64), np.empty(len(rows), np.int64)
        for file, offset, a, b in zip(self.files, self.offsets, cuts, cuts[1:], strict=False):
            begin[a:b] = file.indptr[ordered[a:b] - offset]
            end[a:b] = file.indptr[ordered[a:b] - offset + 1]
        indptr = np.zeros(len(rows) + 1, np.int64)
        indptr[1:][by_place] = end - begin
        np.cumsum(indptr, out=indptr)
        target = indptr[by_place]
        result = Rows(np.empty(indptr[-1], np.float32), np.empty(indptr[-1], np.int32), indptr)
        tasks = []
        for file, a, b in zip(self.files, cuts, cuts[1:], strict=False):
            for array, out in ((file.data, result.data), (file.indices, result.indices)):
                chunks, first, last = _chunks_of(begin[a:b], end[a:b], array.chunk)
                for i in range(0, len(chunks), CHUNKS_PER_TASK):
                    part = slice(i, i + CHUNKS_PER_TASK)
                    tasks.append(
                        self.pool.submit(
                            array.copy_rows, chunks[part], first[part], last[part],
                            begin[a:b], end[a:b], target[a:b], out,
                        )
                    )  # fmt: skip
        try:
            for task in tasks:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
        return result

    def close(self) -> None:
        self.pool.shutdown(cancel_futures=True)
        for file in self.files:
            file.close()


class _File:
    def __init__(self, path: Path) -> None:
        self.h5 = h5py.File(path)
        self.fd = os.open(path, os.O_RDONLY)
        x = self.h5["X"]
        self.indptr = x["indptr"][:].astype(np.int64, copy=False)
        self.data = _Array(path, self.fd, x["data"])
        self.indices = _Array(path, self.fd, x["indices"])

    def close(self) -> None:
        self.h5.close()
        os.close(self.fd)


class _Array:
    """One 1-D HDF5 array as chunks that can be decoded apart from each other."""

    def __init__(self, path: Path, fd: int, dataset: h5py.Dataset) -> None:
        self.path, self.fd, self.dataset = path, fd, dataset
        self.chunk = dataset.chunks[0] if dataset.chunks else PLAIN_SLICE
        # Other filters (lzf, zstd, shuffle, ...) and byte orders are HDF5's business: slower, one at a time.
        self.direct = (
            dataset.chunks is not None and dataset.dtype.isnative and _filters(dataset) == [h5py.h5z.FILTER_DEFLATE]
        )
        if self.direct:
            n_chunks = -(-len(dataset) // self.chunk)
            self.place, self.size = np.zeros(n_chunks, np.int64), np.zeros(n_chunks, np.int64)
            dataset.id.chunk_iter(self._note)
            if (self.size == 0).any():  # a chunk that was never written holds the fill value: leave it to HDF5
                self.direct = False

    def _note(self, chunk: h5py.h5d.StoreInfo) -> None:
        at = chunk.chunk_offset[0] // self.chunk
        self.place[at] = chunk.byte_offset
        self.size[at] = chunk.size if chunk.filter_mask == 0 else 0

    def copy_rows(self, chunks, first, last, begin, end, target, out) -> None:
        """Decodes some chunks and copies what rows first..last want of each to its place in `out`."""
        for chunk, i, j in zip(chunks.tolist(), first.tolist(), last.tolist(), strict=True):
            values = self._decode(chunk).astype(out.dtype, copy=False)
            _scatter(values, chunk * self.chunk, begin[i:j], end[i:j], target[i:j], out)

    def _decode(self, chunk: int) -> np.ndarray:
        start = chunk * self.chunk
        try:
            if not self.direct:
                return self.dataset[start : start + self.chunk]
            packed = os.pread(self.fd, self.size[chunk], self.place[chunk])
            values = np.frombuffer(
                isal_zlib.decompress(packed, bufsize=self.chunk * self.dataset.dtype.itemsize),
                self.dataset.dtype,
            )
            if len(values) != self.chunk:
                raise OSError(f"it holds {len(values)} elements, not {self.chunk}")
        except (OSError, isal_zlib.error, zlib.error) as error:
            raise OSError(
                f"{self.path}: chunk {chunk} of {self.dataset.name} (elements {start} to "
                f"{start + self.chunk}) cannot be read: {error}"
            ) from error
        return values


def _filters(dataset: h5py.Dataset) -> list[int]:
    plist = dataset.id.get_create_plist()
    return [plist.get_filter(i)[0] for i in range(plist.get_nfilters())]


@numba.njit(nogil=True, cache=True)
def _chunks_of(begin, end, chunk):
    """The chunks that rows of ascending element ranges touch, and the range of rows that touch each."""
    n = 0
    previous = -1
    for i in range(len(begin)):
        if end[i] > begin[i]:
            a, b = begin[i] // chunk, (end[i] - 1) // chunk
            n += b - max(a, previous + 1) + 1
            previous = b
    chunks, first, last = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64)
    n = 0
    for i in range(len(begin)):
        if end[i] > begin[i]:
            a, b = begin[i] // chunk, (end[i] - 1) // chunk
            for c in range(a, b + 1):
                if n == 0 or chunks[n - 1] < c:
                    chunks[n] = c
                    first[n] = i
                    n += 1
                last[n - 1] = i + 1
    return chunks, first, last


@numba.njit(nogil=True, cache=True)
def _scatter(values, start, begin, end, target, out):
    """Copies each row's part of one chunk, whose first element is `start`, to its place."""
    stop = start + len(values)
    for i in range(len(begin)):
        a, b = max(begin[i], start), min(end[i], stop)
        shift = target[i] - begin[i]
        for k in range(a, b):
            out[k + shift] = values[k - start]
