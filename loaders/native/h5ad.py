"""CSR in an h5ad file, unconverted.

HDF5 is asked once where the chunks lie. After that they are read straight from the file and decoded by threads, none
of which holds Python's lock or HDF5's for long.
"""

import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Literal

import h5py
import numpy as np

from loaders.native import codecs
from loaders.native.arrays import Array, Chunked, Plain, Table, Through
from loaders.native.matrix import Matrix, Part

SHUFFLE, BLOSC, ZSTD = h5py.h5z.FILTER_SHUFFLE, 32_001, 32_015
CODECS = {
    None: lambda dtype, chunk, shuffled: codecs.plain(dtype, shuffled),
    h5py.h5z.FILTER_DEFLATE: codecs.inflate,
    BLOSC: lambda dtype, chunk, shuffled: codecs.blosc(dtype, shuffled),
    ZSTD: lambda dtype, chunk, shuffled: codecs.zstd(dtype, shuffled),
}
"""By the number of HDF5's filter."""


def open_h5ad(
    paths: Sequence[Path | str],
    *,
    matrix: str = "X",
    output: Literal["csr", "dense"] = "csr",
    threads: int | None = None,
) -> Matrix:
    """The cells of h5ad files, one file after another, as a source for `BlockLoader`.

    matrix: "X", "raw/X" or "layers/NAME", in CSR; the files have the same genes. Only indptr is read here.
    output, threads: see `Matrix`. OSError for a file that is cut short, ValueError for a matrix that is not CSR.
    """
    parts = [open_part(Path(path), matrix) for path in paths]
    widths = set()
    for path in paths:
        with h5py.File(path) as file:
            widths.add(_shape(file[matrix])[1])
    if len(widths) > 1:
        raise ValueError(f"the files differ in their number of genes: {sorted(widths)}")
    return Matrix(parts, widths.pop(), output=output, threads=threads)


def open_part(path: Path, matrix: str = "X") -> Part:
    """One file's matrix."""
    with ExitStack() as files:
        file = files.enter_context(h5py.File(path))
        fd = os.open(path, os.O_RDONLY)
        files.callback(os.close, fd)
        x = file[matrix]
        _shape(x)
        indptr = x["indptr"][:].astype(np.int64, copy=False)
        return Part(indptr, _array(path, fd, x["data"]), _array(path, fd, x["indices"]), files.pop_all().close)


def _shape(x: h5py.Group | h5py.Dataset) -> tuple[int, int]:
    """(cells, genes) of a CSR matrix."""
    kind = x.attrs.get("encoding-type", x.attrs.get("h5sparse_format", "array"))
    if "csr" not in str(kind):
        raise ValueError(f"{x.file.filename}: {x.name} is {kind}, not CSR")
    return tuple(int(n) for n in x.attrs.get("shape", x.attrs.get("h5sparse_shape")))


def _array(path: Path, fd: int, dataset: h5py.Dataset) -> Array:
    name, length = f"{path}: {dataset.name}", len(dataset)
    if not dataset.chunks:
        place = dataset.id.get_offset()
        if place is None:
            return Through(name, dataset, "it does not lie in one piece of this file")
        return Plain(name, fd, dataset.dtype, np.array([0, length]), np.array([place]))
    filters = _filters(dataset)
    shuffled = filters[:1] == [SHUFFLE]
    rest = filters[1:] if shuffled else filters
    chunk = dataset.chunks[0]
    if len(rest) > 1 or (rest and rest[0] not in CODECS):
        return Through(name, dataset, "no other codec is at hand for its filters")
    place, size = _chunk_table(dataset)
    if (size == 0).any():
        return Through(name, dataset, "some of its chunks were never written, or not filtered")
    codec = CODECS[rest[0] if rest else None](dataset.dtype, chunk, shuffled)
    return Chunked(name, length, chunk, codec, Table(np.array([fd]), len(place), place, size))


def _filters(dataset: h5py.Dataset) -> list[int]:
    plist = dataset.id.get_create_plist()
    return [plist.get_filter(i)[0] for i in range(plist.get_nfilters())]


def _chunk_table(dataset: h5py.Dataset) -> tuple[np.ndarray, np.ndarray]:
    """(byte, bytes) of every chunk; 0 bytes for one that does not lie there filtered as the array says."""
    n_chunks = -(-len(dataset) // dataset.chunks[0])
    place, size = np.zeros(n_chunks, np.int64), np.zeros(n_chunks, np.int64)

    def note(chunk: h5py.h5d.StoreInfo) -> None:
        i = chunk.chunk_offset[0] // dataset.chunks[0]
        place[i], size[i] = chunk.byte_offset, 0 if chunk.filter_mask else chunk.size

    dataset.id.chunk_iter(note)
    return place, size
