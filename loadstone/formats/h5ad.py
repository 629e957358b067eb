"""A CSR or dense matrix in h5ad files, without conversion.

When a file is opened, HDF5 is asked for the offsets and sizes of the chunks. After that, the chunks are read directly
from the file and decoded, without HDF5 and its global lock. For a CSR matrix, threads do this in a compiled loop that
releases the GIL. Only arrays whose layout or filters loadstone cannot decode are read through h5py.
"""

import math
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import h5py
import numpy as np
from scipy.sparse import csr_matrix

from loadstone.codecs import registry
from loadstone.codecs.registry import Codec, irregular
from loadstone.formats import genes
from loadstone.formats.h5ad_dense import DenseFiles, ThroughRows, Tiles
from loadstone.formats.indexed import Indexed
from loadstone.reading import validate
from loadstone.reading.arrays import Array, Chunked, Plain, Table, Through, Verify, read_whole
from loadstone.reading.disk import Disk
from loadstone.reading.files import Files, describing, several
from loadstone.reading.matrix import Matrix, Part, warn_if_slow

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


class StoredMatrix(NamedTuple):
    """The matrix of a file, before its arrays are opened.

    fd: the file descriptor. x: the h5py group of a CSR matrix, or the h5py dataset of a dense matrix. form: "csr" or
    "dense". rows, n_genes: the shape of the matrix.
    """

    path: str
    fd: int
    x: h5py.Group | h5py.Dataset
    form: str
    rows: int
    n_genes: int


def open_h5ad(
    paths: Path | str | Sequence[Path | str],
    *,
    matrix: str = "X",
    output: Literal["csr", "dense"] = "csr",
    threads: int | None = None,
    verify: Verify = "first",
    disk: Disk | None = None,
) -> Matrix | Indexed:
    """Opens the matrix of h5ad files as a source for `BlockLoader`. The cells of the files follow one another.

    Returns a `Matrix` if the files store CSR, and an `Indexed` if they store a dense matrix. All files must store the
    same form, and have the same genes in the same order.

    matrix: the path in each file: "X", "raw/X" or "layers/NAME". output: "csr" or "dense", the form of the minibatches,
    float32 (rows, genes). threads: the number of decoding threads for CSR files; None: one per core. Dense files are
    read by one thread. verify: "first", "always" or "never", how often the checksums of gzip chunks of CSR files are
    verified, see `Chunked`. disk: what reads of CSR files cost, from which it follows which chunks are read together;
    None: it is measured with a few reads, see `reading.disk`. Of the arrays of a CSR matrix, only indptr is read here.

    Raises OSError if a file is missing, truncated or unreadable. Raises ValueError for a damaged file, for files of
    different genes or forms, for a matrix in CSC, for data that lie in another file, and for invalid arguments.
    """
    paths = several(paths)
    validate.choice("verify", verify, ("first", "always", "never"))
    validate.choice("output", output, ("csr", "dense"))
    with Files() as files:
        matrices = [_open(path, matrix, files) for path in paths]
        form, n_genes = matrices[0].form, matrices[0].n_genes
        for stored in matrices:
            if (stored.form, stored.n_genes) != (form, n_genes):
                raise ValueError(
                    f"{matrices[0].path} and {stored.path} differ in form or number of genes: "
                    f"{form} with {n_genes:,} and {stored.form} with {stored.n_genes:,}"
                )
        if len({stored.x.id for stored in matrices}) > 1:
            genes.check_same(((stored.path, stored.x.file) for stored in matrices), matrix)
        if form == "csr":
            parts = []
            for stored in matrices:
                with describing(stored.path):
                    parts.append(_part(stored, files, verify))
            files.check()
            warn_if_slow(parts)
            return Matrix(parts, n_genes, output=output, threads=threads, disk=disk, files=files)
        arrays = []
        for stored in matrices:
            with describing(stored.path):
                arrays.append(_dense(stored, files))
        source = DenseFiles(arrays, n_genes, files)
        files.check()
        return Indexed(source, batch_transform=csr_matrix if output == "csr" else None)


def _open(path: Path | str, matrix: str, files: Files) -> StoredMatrix:
    fd, file = files.open_hdf5(path)
    with describing(path):
        if matrix not in file:
            others = [name for name in ("X", "raw/X") if name in file]
            others += [f"layers/{name}" for name in file.get("layers", ())]
            raise ValueError(f"{path} has no matrix {matrix!r}; it has: {', '.join(others) or 'none'}")
        x, name = file[matrix], f"{path}: /{matrix}"
        if isinstance(x, h5py.Dataset):
            _in_this_file(str(path), x)
            rows, n_genes = validate.shape(name, x.shape)
            if x.dtype.kind not in "iufb":
                raise ValueError(f"{name} holds {x.dtype}, not numbers")
            validate.held(name, x.size * x.dtype.itemsize, x.id.get_storage_size())
            stored = StoredMatrix(str(path), fd, x, "dense", rows, n_genes)
        else:
            kind = x.attrs.get("encoding-type", x.attrs.get("h5sparse_format"))
            kind = kind.decode() if isinstance(kind, bytes) else str(kind)
            if "csr" not in kind:
                raise ValueError(f"{name} is {kind[: validate.MOST_CHARACTERS]}; rows are read from CSR or dense")
            shape = x.attrs.get("shape", x.attrs.get("h5sparse_shape"))
            stored = StoredMatrix(str(path), fd, x, "csr", *validate.shape(name, shape))
        genes.check_count(str(path), genes.name_column(file, matrix), stored.n_genes)
    return stored


def _part(stored: StoredMatrix, files: Files, verify: Verify) -> Part:
    name = f"{stored.path}: {stored.x.name}"
    for key in ("indptr", "data", "indices"):
        if key not in stored.x:
            raise ValueError(f"{name} is no CSR matrix: it has no {key}")
    indptr, data, indices = (_in_this_file(stored.path, stored.x[key]) for key in ("indptr", "data", "indices"))
    validate.matrix(name, stored.rows, indptr, data, indices)
    validate.held(f"{name}/indptr", indptr.size * indptr.dtype.itemsize, indptr.id.get_storage_size())
    size = files.size(stored.fd)
    starts = read_whole(_array(stored, indptr, size, verify), len(indptr), indptr.dtype)
    starts = validate.row_starts(f"{name}/indptr", starts, len(data))
    arrays = [_array(stored, array, size, verify) for array in (data, indices)]
    chunked = [array for array in arrays if isinstance(array, Chunked)]
    tables = [(array.name, array.table.place, array.table.size) for array in chunked if array.table]
    if tables:
        validate.disjoint(tables)
    return Part(starts, *arrays)


def _in_this_file(path: str, dataset: h5py.Dataset) -> h5py.Dataset:
    """Returns the dataset. ValueError if its data are not in the file `path`, but external, virtual or linked."""
    if isinstance(dataset, h5py.Dataset) and (dataset.is_virtual or dataset.external or dataset.file.filename != path):
        raise ValueError(f"{path}: {dataset.name} lies in another file; copy it into this one")
    return dataset


def _array(stored: StoredMatrix, dataset: h5py.Dataset, file_bytes: int, verify: Verify) -> Array:
    name, length = f"{stored.path}: {dataset.name}", len(dataset)
    place = dataset.id.get_offset()
    if not dataset.chunks and place is not None and not dataset.file.userblock_size:
        return Plain(name, stored.fd, dataset.dtype, np.array([0, length]), np.array([place]))
    layout = _layout(name, stored.fd, dataset, file_bytes)
    if isinstance(layout, str):
        return Through(name, dataset, layout)
    return Chunked(name, length, dataset.chunks[0], *layout, verify)


def _dense(stored: StoredMatrix, files: Files) -> Tiles | ThroughRows:
    name, dataset = f"{stored.path}: {stored.x.name}", stored.x
    layout = _layout(name, stored.fd, dataset, files.size(stored.fd))
    if isinstance(layout, str):
        return ThroughRows(name, dataset)
    if isinstance(layout[1], Table):
        validate.disjoint([(name, layout[1].place, layout[1].size)])
    return Tiles(name, dataset.shape, dataset.chunks, *layout)


def _layout(
    name: str, fd: int, dataset: h5py.Dataset, file_bytes: int
) -> tuple[Codec, Table | Callable[[int], np.ndarray]] | str:
    """(codec, where), which are arguments of `Chunked`; or, if only h5py can read the dataset, the reason as text.

    Chunks are numbered in row-major order. ValueError if HDF5's table of the chunks is damaged. file_bytes: the size of
    the file in bytes.
    """
    if dataset.file.userblock_size:
        return "the file begins with a user block"
    if not dataset.chunks:
        return "it does not lie in one piece of this file"
    filters = _filters(dataset)
    codec = _codec(filters, dataset.dtype)
    if codec is None:
        return NO_CODEC
    place, size, mask = _chunk_table(name, dataset)
    table = Table(np.array([fd]), len(place), place, size)
    chunk_bytes = math.prod(dataset.chunks) * codec.dtype.itemsize
    written = size > 0
    validate.chunks(name, place, np.where(written, size, 1), chunk_bytes, file_bytes)
    if not written.all() or mask.any():
        by_mask = {m: _codec([f for k, f in enumerate(filters) if not m >> k & 1], codec.dtype) for m in set(mask)}
        if None in by_mask.values():
            return NO_CODEC
        codecs: list[Any] = [by_mask[m] for m in mask]

        def chunk(i: int) -> np.ndarray | None:
            return codecs[i].decode(table.packed(i), chunk_bytes) if table.size[i] else None

        why = "some of its chunks were never written, or are not filtered as the others are"
        return irregular(dataset.dtype, math.prod(dataset.chunks), dataset.fillvalue, chunk, why)
    if not filters and (size != chunk_bytes).any():
        raise ValueError(f"{name}: a chunk of {chunk_bytes} bytes that is not compressed is stored in another size")
    if h5py.h5z.FILTER_DEFLATE in filters and (chunk_bytes > size * validate.DEFLATE_RATIO).any():
        i = int(np.argmin(size))
        raise ValueError(f"{name}, chunk {i}: {size[i]} bytes cannot be inflated to {chunk_bytes:,}")
    return codec, table


def _filters(dataset: h5py.Dataset) -> list[int]:
    plist = dataset.id.get_create_plist()
    return [plist.get_filter(i)[0] for i in range(plist.get_nfilters())]


def _codec(filters: Sequence[int], dtype: np.dtype) -> Codec | None:
    """The codec that undoes these HDF5 filters; None if there is none. filters: in the order of their application."""
    shuffled, summed = filters[:1] == [SHUFFLE], filters[-1:] == [h5py.h5z.FILTER_FLETCHER32]
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
