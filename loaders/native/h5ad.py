"""CSR in an h5ad file, unconverted.

HDF5 is asked once where the chunks lie. After that they are read straight from the file and decoded by threads, none
of which holds Python's lock or HDF5's for long.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Literal

import h5py
import numpy as np
from scipy.sparse import csr_matrix

from loaders.native import codecs
from loaders.native.arrays import Array, Chunked, Plain, Table, Through, open_file
from loaders.native.densefile import DenseFiles
from loaders.native.indexed import Indexed
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
) -> Matrix | Indexed:
    """The cells of h5ad files, one file after another, as a source for `BlockLoader`.

    matrix: "X", "raw/X" or "layers/NAME", in CSR or dense, the same in all files; so are the genes. Of CSR only indptr
    is read here. output, threads: see `Matrix`; a dense X has one reading thread. OSError for a file that is cut
    short, ValueError for files that differ or hold CSC.
    """
    with ExitStack() as opened:
        files = [opened.enter_context(h5py.File(path)) for path in paths]
        found = {_form(file[matrix]) for file in files}
        if len(found) > 1:
            raise ValueError(f"the files differ in form or number of genes: {sorted(found)}")
        ((kind, n_genes),) = found
        if kind == "csr":
            parts = [_part(file[matrix], opened) for file in files]
            return Matrix(parts, n_genes, output=output, threads=threads, close=opened.pop_all().close)
        source = DenseFiles([file[matrix] for file in files], opened.pop_all().close)
        return Indexed(source, batch_transform=csr_matrix if output == "csr" else None)


def _form(x: h5py.Group | h5py.Dataset) -> tuple[str, int]:
    """("csr" or "dense", genes) of one file's matrix."""
    if isinstance(x, h5py.Dataset):
        return "dense", x.shape[1]
    kind = str(x.attrs.get("encoding-type", x.attrs.get("h5sparse_format")))
    if "csr" not in kind:
        raise ValueError(f"{x.file.filename}: {x.name} is {kind}; rows are read from CSR or dense")
    return "csr", int(x.attrs.get("shape", x.attrs.get("h5sparse_shape"))[1])


def _part(x: h5py.Group, opened: ExitStack) -> Part:
    path = x.file.filename
    fd = open_file(path, opened)
    indptr = x["indptr"][:].astype(np.int64, copy=False)
    return Part(indptr, *(_array(path, fd, x[name]) for name in ("data", "indices")))


def _array(path: str, fd: int, dataset: h5py.Dataset) -> Array:
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
    chunk = dataset.chunks[0]
    n_chunks = -(-len(dataset) // chunk)
    place, size = np.zeros(n_chunks, np.int64), np.zeros(n_chunks, np.int64)

    def note(found: h5py.h5d.StoreInfo) -> None:
        i = found.chunk_offset[0] // chunk
        place[i], size[i] = found.byte_offset, 0 if found.filter_mask else found.size

    dataset.id.chunk_iter(note)
    return place, size
