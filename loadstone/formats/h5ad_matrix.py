"""What an h5ad file says of its matrix: its form and shape, where its rows begin, and how its arrays are stored."""

from collections.abc import Callable
from typing import Any, NamedTuple

import h5py
import numpy as np

from loadstone.formats import genes, h5ad_names
from loadstone.formats.h5ad_index import Csr
from loadstone.formats.h5ad_layout import Layout, array_of, layout_of
from loadstone.reading import validate
from loadstone.reading.arrays import Array, Chunked, Read, Through, Verify, read_whole
from loadstone.reading.files import describing
from loadstone.reading.matrix import Part
from loadstone.reading.row_starts import RowStarts


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


def stored_matrix(file: h5py.File, path: str, fd: int, matrix: str) -> StoredMatrix:
    """The matrix of an open file. matrix: its path in the file. ValueError, with `path`, if there is none to read."""
    with describing(path):
        if matrix not in file:
            others = [name for name in ("X", "raw/X") if name in file]
            others += [f"layers/{name}" for name in file.get("layers", ())]
            raise ValueError(f"{path} has no matrix {matrix!r}; it has: {', '.join(others) or 'none'}")
        x, name = file[matrix], f"{path}: /{matrix}"
        if isinstance(x, h5py.Dataset):
            in_this_file(path, x)
            rows, n_genes = validate.shape(name, x.shape)
            if x.dtype.kind not in "iufb":
                raise ValueError(f"{name} holds {x.dtype}, not numbers")
            validate.held(name, x.size * x.dtype.itemsize, x.id.get_storage_size())
            stored = StoredMatrix(path, fd, x, "dense", rows, n_genes)
        else:
            kind = x.attrs.get("encoding-type", x.attrs.get("h5sparse_format"))
            kind = kind.decode() if isinstance(kind, bytes) else str(kind)
            if "csr" not in kind:
                raise ValueError(f"{name} is {kind[: validate.MOST_CHARACTERS]}; rows are read from CSR or dense")
            shape = x.attrs.get("shape", x.attrs.get("h5sparse_shape"))
            stored = StoredMatrix(path, fd, x, "csr", *validate.shape(name, shape))
        genes.check_count(path, genes.name_column(file, matrix), stored.n_genes)
    return stored


def csr_fields(
    stored: StoredMatrix,
    matrix: str,
    file_bytes: int,
    read: Read,
    *,
    named: bool,
    expect: Callable[[np.ndarray, np.ndarray], None] = lambda place, size: None,
) -> dict[str, Callable[[], Any]]:
    """The fields of the matrix as a `Csr`, each as a function that reads it from the file.

    file_bytes: the size of the file. read: see `arrays.Table`. named: whether to read the names of the genes too.
    expect(offsets, sizes): called before parts of the file are read, int64 (parts,). ValueError for a damaged matrix,
    here or when a field is read.
    """
    name = f"{stored.path}: {stored.x.name}"
    for key in ("indptr", "data", "indices"):
        if key not in stored.x:
            raise ValueError(f"{name} is no CSR matrix: it has no {key}")
    indptr, data, indices = (in_this_file(stored.path, stored.x[key]) for key in ("indptr", "data", "indices"))
    validate.matrix(name, stored.rows, indptr, data, indices)
    validate.held(f"{name}/indptr", indptr.size * indptr.dtype.itemsize, indptr.id.get_storage_size())

    def starts() -> RowStarts:
        layout = _stored(f"{name}/indptr", indptr)
        if isinstance(layout, Layout):
            expect(layout.place, layout.size)
        pointers = _array(f"{name}/indptr", stored.fd, layout, file_bytes, "first", read)
        return validate.row_starts(f"{name}/indptr", read_whole(pointers, len(indptr), indptr.dtype), len(data))

    return {
        "n_genes": lambda: stored.n_genes,
        "starts": starts,
        "data": lambda: _stored(f"{name}/data", data),
        "indices": lambda: _stored(f"{name}/indices", indices),
        "genes": lambda: _digest(stored, matrix, read) if named else "",
    }


def _digest(stored: StoredMatrix, matrix: str, read: Read) -> str:
    """See `genes.digest`. read: see `arrays.Table`."""
    return genes.digest(
        stored.path, stored.x.file, matrix, lambda column: h5ad_names.joined(column, stored.path, stored.fd, read)
    )


def part(name: str, fd: int, csr: Csr, file_bytes: int, verify: Verify, read: Read) -> Part:
    """The matrix as `Matrix` reads it. ValueError if its chunks cannot be where its layout says."""
    arrays = [_array(f"{name}/{key}", fd, getattr(csr, key), file_bytes, verify, read) for key in ("data", "indices")]
    chunked = [array for array in arrays if isinstance(array, Chunked)]
    tables = [(array.name, array.table.place, array.table.size) for array in chunked if array.table]
    if tables:
        validate.disjoint(tables)
    return Part(csr.starts, *arrays)


def _stored(name: str, dataset: h5py.Dataset) -> Layout | Through:
    layout = layout_of(name, dataset)
    return Through(name, dataset, layout) if isinstance(layout, str) else layout


def _array(name: str, fd: int, stored: Layout | Through, file_bytes: int, verify: Verify, read: Read) -> Array:
    return stored if isinstance(stored, Through) else array_of(name, fd, stored, file_bytes, verify, read)


def in_this_file(path: str, dataset: h5py.Dataset) -> h5py.Dataset:
    """Returns the dataset. ValueError if its data are not in the file `path`, but external, virtual or linked."""
    if isinstance(dataset, h5py.Dataset) and (dataset.is_virtual or dataset.external or dataset.file.filename != path):
        raise ValueError(f"{path}: {dataset.name} lies in another file; copy it into this one")
    return dataset
