"""Compressed arrays of HDF5 as anndata writes them, compressed by several threads."""

import zlib
from collections import deque
from concurrent.futures import ThreadPoolExecutor

import h5py
import numpy as np

GZIP_LEVEL = 4  # h5py's, and so anndata's, default


class ChunkWriter:
    """Appends to a gzip data set of HDF5, compressing its chunks in threads as h5py itself cannot."""

    def __init__(self, group: h5py.Group, name: str, dtype: str, chunk: int, pool: ThreadPoolExecutor) -> None:
        self.dataset = group.create_dataset(
            name, shape=(0,), maxshape=(None,), dtype=dtype, chunks=(chunk,), compression="gzip",
            compression_opts=GZIP_LEVEL,
        )  # fmt: skip
        self.chunk, self.pool = chunk, pool
        self.written, self.rest, self.pending = 0, np.empty(0, dtype), deque()

    def append(self, values: np.ndarray) -> None:
        values = np.concatenate([self.rest, values])
        whole = len(values) // self.chunk * self.chunk
        for start in range(0, whole, self.chunk):
            self._submit(values[start : start + self.chunk], self.chunk)
        self.rest = values[whole:].copy()

    def close(self) -> None:
        if len(self.rest):
            padded = np.zeros(self.chunk, self.rest.dtype)
            padded[: len(self.rest)] = self.rest
            self._submit(padded, len(self.rest))
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
    """The chunk length h5py picks for a compressed array, and so the one in files that anndata wrote."""
    with h5py.File("chunk", "w", driver="core", backing_store=False) as file:
        return file.create_dataset("x", shape=(max(length, 1),), dtype="f4", chunks=True).chunks[0]
