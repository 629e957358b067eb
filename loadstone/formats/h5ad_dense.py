"""Reads rows of a matrix that h5ad files store as a dense array."""

import warnings
from collections.abc import Callable, Sequence
from itertools import pairwise

import h5py
import numpy as np

from loadstone.codecs.registry import Codec
from loadstone.reading.arrays import Table, reading
from loadstone.reading.files import Files


class DenseFiles:
    """The rows of several dense arrays, one array after another: a collection for `Indexed`. `close` closes `files`."""

    def __init__(self, arrays: "Sequence[Tiles | ThroughRows]", n_genes: int, files: Files) -> None:
        self.arrays, self.n_genes, self.close, self.check = arrays, n_genes, files.close, files.check
        self.offsets = np.cumsum([0, *(len(array) for array in self.arrays)])
        for array in arrays[:1]:
            warnings.warn(f"{array.name} is dense, and is {array.slow}", stacklevel=3)

    def __len__(self) -> int:
        return int(self.offsets[-1])

    def __getitem__(self, rows: np.ndarray) -> np.ndarray:
        """The rows with these ids, float32 (len(rows), genes).

        rows: ascending ids, none repeated; not checked. OSError, with the name of the array and the chunk or rows, if
        they cannot be read.
        """
        out = np.empty((len(rows), self.n_genes), np.float32)
        cuts = np.searchsorted(rows, self.offsets)
        for array, offset, first, last in zip(self.arrays, self.offsets, cuts, cuts[1:], strict=False):
            if last > first:
                array.copy(rows[first:last] - offset, out[first:last])
        return out


class Tiles:
    """A dense array in chunks, which are decoded here rather than by HDF5.

    HDF5 does not check how many bytes a chunk decodes to. If there are too few, it returns the bytes that follow them
    in memory. shape: (rows, genes) of the array. chunks: (rows, genes) of a chunk. where: as in `Chunked`, with the
    chunks numbered in row-major order.
    """

    slow = "slower than CSR, as every gene of a cell is read, by one thread"

    def __init__(
        self, name: str, shape: tuple[int, int], chunks: tuple[int, int], codec: Codec, where: Table | Callable
    ) -> None:
        self.name, self.shape, self.chunks, self.codec = name, shape, chunks, codec
        self.packed = where.packed if isinstance(where, Table) else where
        self.whole = chunks[0] * chunks[1] * codec.dtype.itemsize

    def __len__(self) -> int:
        return self.shape[0]

    def copy(self, rows: np.ndarray, out: np.ndarray) -> None:
        """Copies these rows, ascending, to `out`."""
        (height, width), (n_rows, n_genes) = self.chunks, self.shape
        bands, n_across = rows // height, -(-n_genes // width)
        cuts = np.flatnonzero(np.diff(bands, prepend=-1, append=-1))
        for start, stop in pairwise(cuts):
            top = int(bands[start]) * height
            within: np.ndarray | slice = rows[start:stop] - top
            if rows[stop - 1] - rows[start] == stop - start - 1:
                within = slice(int(rows[start]) - top, int(rows[stop - 1]) + 1 - top)
            for k in range(n_across):
                left, right = k * width, min((k + 1) * width, n_genes)
                i = top // height * n_across + k
                place = f"chunk {i} (rows {top} to {min(top + height, n_rows)}, genes {left} to {right})"
                with reading(self.name, place):
                    tile = self.codec.decode(self.packed(i), self.whole).reshape(height, width)
                out[start:stop, left:right] = tile[within, : right - left]


class ThroughRows:
    """A dense array that `Tiles` cannot decode. It is read through h5py, one range of consecutive rows at a time."""

    slow = "read through h5py: slower than CSR, as every gene of a cell is read, by one thread"

    def __init__(self, name: str, array: h5py.Dataset) -> None:
        self.name, self.array = name, array

    def __len__(self) -> int:
        return len(self.array)

    def copy(self, rows: np.ndarray, out: np.ndarray) -> None:
        """Copies these rows, ascending, to `out`."""
        ends = np.flatnonzero(np.diff(rows) != 1) + 1
        for start, stop in pairwise([0, *ends, len(rows)]):
            first, last = int(rows[start]), int(rows[stop - 1]) + 1
            with reading(self.name, f"rows {first} to {last}"):
                out[start:stop] = self.array[first:last]
