"""A dense X in h5ad files, read through h5py."""

import warnings
from collections.abc import Callable, Sequence

import h5py
import numpy as np


class DenseFiles:
    """The rows of two-dimensional arrays, one after another, as `Indexed` asks for them; close: frees the files.

    HDF5 reads one row range at a time, under a lock of its own: slower than CSR, and so said once.
    """

    def __init__(self, arrays: Sequence[h5py.Dataset], close: Callable[[], None]) -> None:
        self.arrays, self.close = arrays, close
        self.offsets = np.cumsum([0, *(len(array) for array in self.arrays)])
        first = arrays[0]
        warnings.warn(f"{first.file.filename}: {first.name} is dense, and is read through h5py, slower", stacklevel=3)

    @property
    def n_genes(self) -> int:
        return self.arrays[0].shape[1]

    def __len__(self) -> int:
        return int(self.offsets[-1])

    def __getitem__(self, rows: np.ndarray) -> np.ndarray:
        """(len(rows), genes) float32; rows: ascending, none twice."""
        out = np.empty((len(rows), self.n_genes), np.float32)
        file = np.searchsorted(self.offsets, rows, "right") - 1
        ends = np.flatnonzero((np.diff(rows) != 1) | (np.diff(file) != 0)) + 1
        for start, stop in zip([0, *ends], [*ends, len(rows)], strict=True):
            first = rows[start] - self.offsets[file[start]]
            out[start:stop] = self.arrays[file[start]][first : first + stop - start]
        return out
