"""A dense X in h5ad files, read through h5py."""

import warnings
from collections.abc import Sequence

import h5py
import numpy as np

from loaders.native.files import Files
from loaders.native.validate import one_line


class DenseFiles:
    """The rows of two-dimensional arrays, one after another, as `Indexed` asks for them; close: frees the files.

    HDF5 reads one row range at a time, under a lock of its own: slower than CSR, and so said once.
    """

    def __init__(self, arrays: Sequence[h5py.Dataset], files: Files) -> None:
        self.arrays, self.close, self.check = arrays, files.close, files.check
        self.names = [f"{array.file.filename}: {array.name}" for array in arrays]
        self.offsets = np.cumsum([0, *(len(array) for array in self.arrays)])
        warnings.warn(
            f"{self.names[0]} is dense, and is read through h5py: slower than CSR, as every gene of a cell is read",
            stacklevel=3,
        )

    @property
    def n_genes(self) -> int:
        return self.arrays[0].shape[1]

    def __len__(self) -> int:
        return int(self.offsets[-1])

    def __getitem__(self, rows: np.ndarray) -> np.ndarray:
        """(len(rows), genes) float32; rows: ascending, none twice. OSError naming file and rows that cannot be read."""
        out = np.empty((len(rows), self.n_genes), np.float32)
        file = np.searchsorted(self.offsets, rows, "right") - 1
        ends = np.flatnonzero((np.diff(rows) != 1) | (np.diff(file) != 0)) + 1
        for start, stop in zip([0, *ends], [*ends, len(rows)], strict=True):
            if stop == start:
                continue
            first = int(rows[start] - self.offsets[file[start]])
            last = first + int(stop - start)
            try:
                out[start:stop] = self.arrays[file[start]][first:last]
            except Exception as error:  # h5py passes on whatever HDF5 and its filters raise
                raise OSError(
                    f"{self.names[file[start]]}, rows {first} to {last}, cannot be read: {one_line(error)}"
                ) from error
        return out
