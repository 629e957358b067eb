"""A dense X in h5ad files, read through h5py."""

import warnings
from collections.abc import Sequence
from pathlib import Path

import h5py
import numpy as np


class DenseFiles:
    """The rows of two-dimensional arrays in several files, one file after another; any object's place in `Indexed`.

    HDF5 reads one row range at a time, under a lock of its own: slower than CSR, and so said once.
    """

    def __init__(self, paths: Sequence[Path], matrix: str) -> None:
        self.files = [h5py.File(path) for path in paths]
        self.arrays = [file[matrix] for file in self.files]
        self.offsets = np.cumsum([0, *(len(array) for array in self.arrays)])
        warnings.warn(f"{paths[0]}: {matrix} is dense, and is read through h5py, slower", stacklevel=3)

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

    def close(self) -> None:
        for file in self.files:
            file.close()
