"""Writes compressed HDF5 arrays as anndata does, but compresses their chunks in several threads."""

import zlib
from collections import deque
from concurrent.futures import ThreadPoolExecutor

import h5py
import numpy as np

GZIP_LEVEL = 4  # the default of h5py, and therefore of anndata


class ChunkWriter:
    """Creates a one-dimensional gzip data set and appends to it. The threads of `pool` compress its chunks.

    h5py itself compresses in one thread. chunk: the number of elements per chunk.
    """

    def __init__(self, group: h5py.Group, name: str, dtype: str, chunk: int, pool: ThreadPoolExecutor) -> None:
        self.dataset = group.create_dataset(
            name, shape=(0,), maxshape=(None,), dtype=dtype, chunks=(chunk,), compression="gzip",
            compression_opts=GZIP_LEVEL,
        )  # fmt: skip
        self.chunk, self.pool = chunk, pool
        self.written, self.remainder, self.pending = 0, np.empty(0, dtype), deque()

    def append(self, values: np.ndarray) -> None:
        """Submits all complete chunks for compression; keeps the remaining elements for the next call."""
        values = np.concatenate([self.remainder, values])
        whole = len(values) // self.chunk * self.chunk
        for start in range(0, whole, self.chunk):
            self._submit(values[start : start + self.chunk], self.chunk)
        self.remainder = values[whole:].copy()

    def close(self) -> None:
        """Writes all chunks that are not yet written, and last the partial one."""
        if len(self.remainder):
            padded = np.zeros(self.chunk, self.remainder.dtype)
            padded[: len(self.remainder)] = self.remainder
            self._submit(padded, len(self.remainder))
        while self.pending:
            self._write_oldest()

    def _submit(self, values: np.ndarray, used: int) -> None:
        self.pending.append((self.pool.submit(zlib.compress, values.tobytes(), GZIP_LEVEL), used))
        if len(self.pending) > 64:
            self._write_oldest()

    def _write_oldest(self) -> None:
        future, used = self.pending.popleft()
        self.dataset.resize((self.written + used,))
        self.dataset.id.write_direct_chunk((self.written,), future.result())
        self.written += used


def chunk_like_anndata(length: int) -> int:
    """The chunk length that h5py, and therefore anndata, chooses for a compressed array of `length` elements."""
    with h5py.File("chunk", "w", driver="core", backing_store=False) as file:
        return file.create_dataset("x", shape=(max(length, 1),), dtype="f4", chunks=True).chunks[0]
