"""How HDF5 stores an array: all that is needed to read it without HDF5."""

import math
import os
from array import array
from collections.abc import Callable
from typing import Any, NamedTuple

import h5py
import numpy as np

from loadstone.codecs import registry
from loadstone.codecs.registry import Codec, irregular
from loadstone.reading import validate
from loadstone.reading.arrays import Array, Chunked, Plain, Read, Table, Verify

SHUFFLE, BLOSC, ZSTD = h5py.h5z.FILTER_SHUFFLE, 32_001, 32_015
CODECS = {
    None: registry.plain,
    h5py.h5z.FILTER_DEFLATE: registry.inflate,
    h5py.h5z.FILTER_LZF: registry.lzf,
    BLOSC: registry.blosc,
    ZSTD: registry.zstd,
}
"""For each HDF5 filter number (None: no filter), the function that makes its codec."""
NO_CODEC = "no other codec is at hand for its filters"
MOST_UNWRITTEN = 10_000  # an array with more chunks is refused if more than half of them were never written


class Layout(NamedTuple):
    """The layout of an array in its file.

    chunks: the shape of a chunk; empty if the array lies in one piece. filters: the numbers of the HDF5 filters, in the
    order of their application. fill: the value of elements that were never written.

    place, size, mask: the offset in the file and the stored size in bytes of each chunk, and a bit for each filter that
    was not applied to it: int64 (chunks,). Chunks are numbered in row-major order. A chunk that was never written has
    size 0, any other at least 1. An array in one piece has one entry.
    """

    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    dtype: np.dtype
    filters: tuple[int, ...]
    fill: float
    place: np.ndarray
    size: np.ndarray
    mask: np.ndarray

    @property
    def n_chunks(self) -> int:
        """The number of chunks; 1 if the array lies in one piece."""
        if not self.chunks:
            return 1
        return math.prod(-(-n // chunk) for n, chunk in zip(self.shape, self.chunks, strict=True))


def layout_of(name: str, dataset: h5py.Dataset) -> Layout | str:
    """The layout of a dataset; or, if only h5py can read it, the reason as text.

    ValueError if HDF5's table of the chunks is damaged. name: the file and the dataset, for messages.
    """
    if dataset.file.userblock_size:
        return "the file begins with a user block"
    start = dataset.id.get_offset()
    if not dataset.chunks and start is None:
        return "it does not lie in one piece of this file"
    filters = _filters(dataset)
    if _codec(filters, dataset.dtype) is None:
        return NO_CODEC
    if dataset.chunks:
        table = _chunk_table(name, dataset)
    else:
        table = np.array([start]), np.array([dataset.size * dataset.dtype.itemsize]), np.zeros(1, np.int64)
    return Layout(dataset.shape, dataset.chunks or (), dataset.dtype, filters, dataset.fillvalue, *table)


def array_of(
    name: str, fd: int, layout: Layout, file_bytes: int, verify: Verify = "first", read: Read = os.pread
) -> Array:
    """The array of one dimension that has this layout. Errors: `codec_of`. OSError if the file is too short."""
    (length,) = layout.shape
    if not layout.chunks:
        return Plain(name, fd, layout.dtype, np.array([0, length]), layout.place, file_bytes, read)
    return Chunked(name, length, layout.chunks[0], *codec_of(name, fd, layout, file_bytes, read), verify)


def codec_of(
    name: str, fd: int, layout: Layout, file_bytes: int, read: Read = os.pread
) -> tuple[Codec, Table | Callable[[int], np.ndarray]]:
    """(codec, where) of an array in chunks, which are arguments of `Chunked`.

    file_bytes: the size of the file in bytes. read: see `Table`. ValueError if a chunk cannot be where and what the
    layout says.
    """
    place, size, mask = layout.place, layout.size, layout.mask
    dtype, chunk_bytes = layout.dtype, math.prod(layout.chunks) * layout.dtype.itemsize
    codec = _codec(layout.filters, dtype)
    if codec is None:
        raise ValueError(f"{name}: {NO_CODEC}")
    table = Table(np.array([fd]), len(place), place, size, read)
    written = size > 0
    validate.chunks(name, place, np.where(written, size, 1), chunk_bytes, file_bytes)
    if not written.all() or mask.any():
        by_mask = {
            m: _codec(tuple(f for k, f in enumerate(layout.filters) if not m >> k & 1), dtype) for m in set(mask)
        }
        codecs: list[Any] = [by_mask[m] for m in mask]

        def chunk(i: int) -> np.ndarray | None:
            return codecs[i].decode(table.packed(i), chunk_bytes) if table.size[i] else None

        why = "some of its chunks were never written, or are not filtered as the others are"
        return irregular(dtype, math.prod(layout.chunks), layout.fill, chunk, why)
    if not layout.filters and (size != chunk_bytes).any():
        raise ValueError(f"{name}: a chunk of {chunk_bytes} bytes that is not compressed is stored in another size")
    if h5py.h5z.FILTER_DEFLATE in layout.filters and (chunk_bytes > size * validate.DEFLATE_RATIO).any():
        i = int(np.argmin(size))
        raise ValueError(f"{name}, chunk {i}: {size[i]} bytes cannot be inflated to {chunk_bytes:,}")
    return codec, table


def _filters(dataset: h5py.Dataset) -> tuple[int, ...]:
    plist = dataset.id.get_create_plist()
    return tuple(plist.get_filter(i)[0] for i in range(plist.get_nfilters()))


def _codec(filters: tuple[int, ...], dtype: np.dtype) -> Codec | None:
    """The codec that undoes these HDF5 filters; None if there is none. filters: in the order of their application."""
    shuffled, summed = filters[:1] == (SHUFFLE,), filters[-1:] == (h5py.h5z.FILTER_FLETCHER32,)
    rest = filters[shuffled : len(filters) - summed]
    if len(rest) > 1 or (rest and rest[0] not in CODECS):
        return None
    return CODECS[rest[0] if rest else None](dtype, shuffled=shuffled, summed=summed)


def _chunk_table(name: str, dataset: h5py.Dataset) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(offsets in the file, stored sizes in bytes, filter masks) of all chunks: three arrays, each int64 (chunks,).

    Chunks are numbered in row-major order. Bit k of a filter mask is set if filter k was not applied to the chunk. A
    chunk that was never written has size 0, any other at least 1. ValueError if HDF5's table of the chunks is damaged,
    or if too many chunks were never written (`MOST_UNWRITTEN`).
    """
    grid = [-(-n // chunk) for n, chunk in zip(dataset.shape, dataset.chunks, strict=True)]
    n_chunks, n_written = math.prod(grid), dataset.id.get_num_chunks()
    if n_chunks > max(MOST_UNWRITTEN, 2 * n_written):
        raise ValueError(f"{name} should have {n_chunks:,} chunks, but only {n_written:,} were written")
    numbers = array("Q")  # holds no Python objects, which the garbage collector would have to track
    dataset.id.chunk_iter(lambda info: numbers.extend(info.chunk_offset + info[1:]))
    infos = np.frombuffer(numbers, np.uint64).reshape(-1, len(grid) + 3)
    first, (mask, place, size) = infos[:, : len(grid)], infos[:, len(grid) :].T
    k, beside = np.divmod(first, np.array(dataset.chunks, np.uint64))
    strange = (beside != 0).any(axis=1) | (k >= np.array(grid, np.uint64)).any(axis=1) | (place | size >= 2**62)
    if strange.any():
        where = ", ".join(map(str, first[np.argmax(strange)]))
        raise ValueError(f"{name}: its table of chunks is damaged (a chunk at {where})")
    i = np.ravel_multi_index(tuple(k.T.astype(np.int64)), grid)
    if len(i) and np.bincount(i, minlength=n_chunks).max() > 1:
        raise ValueError(f"{name}: its table of chunks is damaged (a chunk is there twice)")
    table = np.zeros((3, n_chunks), np.int64)
    table[:, i] = place, np.maximum(size, 1), mask
    return tuple(table)
