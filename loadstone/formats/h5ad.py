"""A CSR or dense matrix in h5ad files, without conversion.

When a file is opened, HDF5 is asked for the offsets and sizes of the chunks. After that, the chunks are read directly
from the file and decoded, without HDF5 and its global lock. For a CSR matrix, threads do this in a compiled loop that
releases the GIL. Only arrays whose layout or filters loadstone cannot decode are read through h5py.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, get_args

import h5py
from scipy.sparse import csr_matrix

from loadstone.formats import genes, h5ad_index
from loadstone.formats.h5ad_dense import DenseFiles, ThroughRows, Tiles
from loadstone.formats.h5ad_index import Csr
from loadstone.formats.h5ad_layout import Layout, array_of, codec_of, layout_of
from loadstone.formats.indexed import Indexed
from loadstone.reading import validate
from loadstone.reading.arrays import Array, Chunked, Table, Through, Verify, read_whole
from loadstone.reading.densify import as_counts
from loadstone.reading.disk import Disk
from loadstone.reading.files import Files, describing, several
from loadstone.reading.matrix import Matrix, Part, warn_if_slow
from loadstone.reading.minibatches import Output


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
    output: Output = "csr",
    threads: int | None = None,
    verify: Verify = "first",
    disk: Disk | None = None,
    index: Path | str | None = None,
) -> Matrix | Indexed:
    """Opens the matrix of h5ad files as a source for `BlockLoader`. The cells of the files follow one another.

    Returns a `Matrix` if the files store CSR, and an `Indexed` if they store a dense matrix. All files must store the
    same form, and have the same genes in the same order.

    matrix: the path in each file: "X", "raw/X" or "layers/NAME". output: "csr" or "dense", the form of the minibatches,
    float32 (rows, genes). "dense_uint16" has half as many bytes; it is for counts, which must be at most 65,535.
    threads: the number of decoding threads for CSR files; None: one per core. Dense files are read by one thread.
    verify: "first", "always" or "never", how often the checksums of gzip chunks of CSR files are verified, see
    `Chunked`. disk: what reads of CSR files cost, from which it follows which chunks are read together; None: it is
    measured with a few reads, see `reading.disk`. index: a folder that keeps where the chunks of CSR files are and
    where their rows begin, 4 bytes a row and 24 a chunk, so that files are opened again without HDF5; None: nothing is
    kept. Of the arrays of a CSR matrix, only indptr is read here.

    Raises OSError if a file is missing, truncated or unreadable, or if `index` cannot be written to. Raises ValueError
    for a damaged file, for files of different genes or forms, for a matrix in CSC, for data that lie in another file,
    and for invalid arguments. A minibatch raises it for a value that does not fit into uint16.
    """
    paths = several(paths)
    validate.choice("verify", verify, ("first", "always", "never"))
    validate.choice("output", output, get_args(Output))
    with Files() as files:
        fds = [files.open(path) for path in paths]
        indexed = None if index is None else _indexed(Path(index), paths, fds, matrix, files)
        opened = indexed or []
        if not opened:
            matrices = [_open(path, fd, matrix, files) for path, fd in zip(paths, fds, strict=True)]
            _check_alike(matrices, matrix)
            if matrices[0].form == "dense":
                return _open_dense(matrices, output, files)
            for stored in matrices:
                with describing(stored.path):
                    opened.append(_read_csr(stored, matrix, files, named=index is not None))
        parts = []
        for path, fd, csr in zip(paths, fds, opened, strict=True):
            with describing(path):
                parts.append(_part(f"{path}: /{matrix}", fd, csr, files.size(fd), verify))
        files.check()
        if index is not None and indexed is None:
            for path, fd, csr in zip(paths, fds, opened, strict=True):
                h5ad_index.keep(Path(index), path, files.stamp(fd), matrix, csr)
        warn_if_slow(parts)
        return Matrix(parts, opened[0].n_genes, output=output, threads=threads, disk=disk, files=files)


def _indexed(
    folder: Path, paths: Sequence[Path | str], fds: Sequence[int], matrix: str, files: Files
) -> list[Csr] | None:
    """What is kept of all files; None if one is missing there, or if they do not have the same genes."""
    found: list[Csr] = []
    for path, fd in zip(paths, fds, strict=True):
        csr = h5ad_index.kept(folder, path, files.stamp(fd), matrix)
        if csr is None or (csr.n_genes, csr.genes) != (found or [csr])[0][:2]:
            return None
        found.append(csr)
    return found


def _check_alike(matrices: Sequence[StoredMatrix], matrix: str) -> None:
    """ValueError unless all matrices have one form and the same genes."""
    first = matrices[0]
    for stored in matrices:
        if (stored.form, stored.n_genes) != (first.form, first.n_genes):
            raise ValueError(
                f"{first.path} and {stored.path} differ in form or number of genes: "
                f"{first.form} with {first.n_genes:,} and {stored.form} with {stored.n_genes:,}"
            )
    if len({stored.x.id for stored in matrices}) > 1:
        genes.check_same(((stored.path, stored.x.file) for stored in matrices), matrix)


def _open_dense(matrices: Sequence[StoredMatrix], output: Output, files: Files) -> Indexed:
    arrays = []
    for stored in matrices:
        with describing(stored.path):
            arrays.append(_dense(stored, files))
    source = DenseFiles(arrays, matrices[0].n_genes, files)
    files.check()
    transform = {"csr": csr_matrix, "dense": None, "dense_uint16": as_counts}[output]
    return Indexed(source, batch_transform=transform)


def _open(path: Path | str, fd: int, matrix: str, files: Files) -> StoredMatrix:
    file = files.hdf5(fd)
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


def _read_csr(stored: StoredMatrix, matrix: str, files: Files, named: bool) -> Csr:
    """Reads indptr. named: whether to read the names of the genes too."""
    name, file_bytes = f"{stored.path}: {stored.x.name}", files.size(stored.fd)
    for key in ("indptr", "data", "indices"):
        if key not in stored.x:
            raise ValueError(f"{name} is no CSR matrix: it has no {key}")
    indptr, data, indices = (_in_this_file(stored.path, stored.x[key]) for key in ("indptr", "data", "indices"))
    validate.matrix(name, stored.rows, indptr, data, indices)
    validate.held(f"{name}/indptr", indptr.size * indptr.dtype.itemsize, indptr.id.get_storage_size())
    pointers = _array(f"{name}/indptr", stored.fd, _stored(f"{name}/indptr", indptr), file_bytes, "first")
    starts = validate.row_starts(f"{name}/indptr", read_whole(pointers, len(indptr), indptr.dtype), len(data))
    names = genes.digest(stored.path, stored.x.file, matrix) if named else ""
    return Csr(stored.n_genes, names, starts, _stored(f"{name}/data", data), _stored(f"{name}/indices", indices))


def _part(name: str, fd: int, csr: Csr, file_bytes: int, verify: Verify) -> Part:
    arrays = [_array(f"{name}/{key}", fd, getattr(csr, key), file_bytes, verify) for key in ("data", "indices")]
    chunked = [array for array in arrays if isinstance(array, Chunked)]
    tables = [(array.name, array.table.place, array.table.size) for array in chunked if array.table]
    if tables:
        validate.disjoint(tables)
    return Part(csr.starts, *arrays)


def _stored(name: str, dataset: h5py.Dataset) -> Layout | Through:
    layout = layout_of(name, dataset)
    return Through(name, dataset, layout) if isinstance(layout, str) else layout


def _array(name: str, fd: int, stored: Layout | Through, file_bytes: int, verify: Verify) -> Array:
    return stored if isinstance(stored, Through) else array_of(name, fd, stored, file_bytes, verify)


def _in_this_file(path: str, dataset: h5py.Dataset) -> h5py.Dataset:
    """Returns the dataset. ValueError if its data are not in the file `path`, but external, virtual or linked."""
    if isinstance(dataset, h5py.Dataset) and (dataset.is_virtual or dataset.external or dataset.file.filename != path):
        raise ValueError(f"{path}: {dataset.name} lies in another file; copy it into this one")
    return dataset


def _dense(stored: StoredMatrix, files: Files) -> Tiles | ThroughRows:
    name, dataset = f"{stored.path}: {stored.x.name}", stored.x
    layout = layout_of(name, dataset)
    if isinstance(layout, str) or not layout.chunks:
        return ThroughRows(name, dataset)
    codec, where = codec_of(name, stored.fd, layout, files.size(stored.fd))
    if isinstance(where, Table):
        validate.disjoint([(name, where.place, where.size)])
    return Tiles(name, dataset.shape, dataset.chunks, codec, where)
