"""Reads h5ad files in slabs of consecutive cells, so that a conversion needs only a bounded amount of memory."""

from collections.abc import Iterator
from typing import NamedTuple

import h5py
import numpy as np
from scipy.sparse import csr_matrix

from harness.data.dataset import Dataset


class Slab(NamedTuple):
    """The CSR arrays of consecutive cells: data (float32), indices (int32) and indptr (int64, starting at 0)."""

    data: np.ndarray
    indices: np.ndarray
    indptr: np.ndarray


def csr_slabs(dataset: Dataset, rows_per_slab: int) -> Iterator[tuple[int, Slab]]:
    """Yields pairs (row id of the slab's first cell, slab), in the order of the row ids, until all cells are read.

    A slab holds 1 to `rows_per_slab` cells of one file. If X is dense, a slab holds only the non-zero values, but its
    dense rows are in memory while they are converted.
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
