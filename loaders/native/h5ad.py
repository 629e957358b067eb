"""CSR in an h5ad file, unconverted.

HDF5 is asked once where the chunks lie. After that they are read straight from the file and decoded by threads, none
of which holds Python's lock or HDF5's for long.
"""

import os
from pathlib import Path

import h5py
import numpy as np

from loaders.native import codecs
from loaders.native.arrays import Array, Chunked, Plain, Through
from loaders.native.matrix import Part

SHUFFLE, BLOSC, ZSTD = h5py.h5z.FILTER_SHUFFLE, 32_001, 32_015
CODECS = {h5py.h5z.FILTER_DEFLATE: "deflate", BLOSC: "blosc", ZSTD: "zstd"}


def open_part(path: Path) -> Part:
    """The matrix X of one file."""
    file = h5py.File(path)
    fd = os.open(path, os.O_RDONLY)

    def close() -> None:
        file.close()
        os.close(fd)

    x = file["X"]
    indptr = x["indptr"][:].astype(np.int64, copy=False)
    return Part(indptr, _array(path, fd, x["data"]), _array(path, fd, x["indices"]), close)


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
    if not rest:
        decode = codecs.plain(dataset.dtype, shuffled)
    elif CODECS[rest[0]] == "deflate":
        decode = codecs.inflate(dataset.dtype, chunk, shuffled)
    else:
        decode = codecs.numcodec(CODECS[rest[0]], dataset.dtype, shuffled)
    return Chunked(name, length, chunk, lambda i: os.pread(fd, size[i], place[i]), decode)


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
