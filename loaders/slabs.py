"""The cells of h5ad files, some thousand at a time, for writing a store in bounded memory."""

from collections.abc import Iterator
from typing import NamedTuple

import h5py
import numpy as np
from scipy.sparse import csr_matrix

from harness.data.dataset import Dataset


class Slab(NamedTuple):
    """CSR arrays of consecutive cells: data float32, indices int32, indptr int64 that starts at 0."""

    data: np.ndarray
    indices: np.ndarray
    indptr: np.ndarray


def csr_slabs(dataset: Dataset, rows_per_slab: int) -> Iterator[tuple[int, Slab]]:
    """(id of its first cell, cells) of every slab, in the order of the row ids.

    No slab is empty, holds more than `rows_per_slab` cells or crosses from one file into the next. A dense X gives
    its non-zeros, and a slab of it is in memory as it is too.
    """
    for path, offset, length in zip(dataset.paths, dataset.offsets.tolist(), dataset.lengths, strict=False):
        with h5py.File(path) as file:
            for start in range(0, length, rows_per_slab):
                stop = min(start + rows_per_slab, length)
                yield offset + start, _read(file["X"], start, stop)


def _read(x: h5py.Group | h5py.Dataset, start: int, stop: int) -> Slab:
    if isinstance(x, h5py.Dataset):
        part = csr_matrix(x[start:stop].astype(np.float32, copy=False))
        return Slab(part.data, part.indices.astype(np.int32, copy=False), part.indptr.astype(np.int64))
    indptr = x["indptr"][start : stop + 1].astype(np.int64)
    part = slice(indptr[0], indptr[-1])
    data, indices = x["data"][part].astype(np.float32, copy=False), x["indices"][part].astype(np.int32, copy=False)
    return Slab(data, indices, indptr - indptr[0])
