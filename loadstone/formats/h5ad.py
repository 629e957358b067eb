"""A CSR or dense matrix in h5ad files, on a disk or in object storage, without conversion.

When a file is opened, HDF5 is asked for the offsets and sizes of the chunks. After that, the chunks are read directly
from the file and decoded, without HDF5 and its global lock. For a CSR matrix, threads do this in a compiled loop that
releases the GIL. Only arrays whose layout or filters loadstone cannot decode are read through h5py.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from scipy.sparse import csr_matrix

from loadstone.formats import genes, h5ad_index, h5ad_remote
from loadstone.formats.h5ad_dense import DenseFiles, ThroughRows, Tiles
from loadstone.formats.h5ad_index import Csr
from loadstone.formats.h5ad_layout import codec_of, layout_of
from loadstone.formats.h5ad_matrix import StoredMatrix, csr_fields, part, stored_matrix
from loadstone.formats.indexed import Indexed
from loadstone.reading import validate
from loadstone.reading.arrays import Table, Verify
from loadstone.reading.densify import as_counts
from loadstone.reading.disk import Disk
from loadstone.reading.files import Files, all_urls, describing, several
from loadstone.reading.matrix import Matrix, warn_if_slow
from loadstone.reading.minibatches import Output
from loadstone.remote.urls import Storage


def open_h5ad(
    paths: Path | str | Sequence[Path | str],
    *,
    matrix: str = "X",
    output: Output = "csr",
    threads: int | None = None,
    verify: Verify = "first",
    disk: Disk | None = None,
    index: Path | str | None = None,
    storage: Storage | None = None,
) -> Matrix | Indexed:
    """Opens the matrix of h5ad files as a source for `BlockLoader`. The cells of the files follow one another.

    paths: of files, or URLs of objects, all of the same kind: "s3://bucket/plate1.h5ad", also gs://, az://, http:// and
    https://. storage: for URLs, options of the store and of its HTTP client, as the package obstore names them, for
    example {"endpoint": "http://127.0.0.1:9000", "allow_http": True, "skip_signature": True}. What it does not say
    comes from the environment.

    Returns a `Matrix` if the files store CSR, and an `Indexed` if they store a dense matrix. All files must store the
    same form, and have the same genes in the same order.

    matrix: the path in each file: "X", "raw/X" or "layers/NAME". output: "csr" or "dense", the form of the minibatches,
    float32 (rows, genes). "dense_uint16" has half as many bytes; it is for counts, which must be at most 65,535.
    threads: the number of decoding threads for CSR files; None: one per core. Dense files are read by one thread.
    verify: "first", "always" or "never", how often the checksums of gzip chunks of CSR files are verified, see
    `Chunked`. disk: what reads of CSR files cost, from which it follows which chunks are read together; None: it is
    measured with a few reads, see `reading.disk`. index: a folder that keeps where the chunks of CSR files are and
    where their rows begin, 4 bytes a row and 24 a chunk, so that files are opened again without HDF5; for URLs also a
    URL, below which many machines find it. None: nothing is kept of files; of objects, it is kept in the user's cache,
    `h5ad_index.usual()`. Of the arrays of a CSR matrix, only indptr is read here.

    Raises OSError if a file is missing, truncated or unreadable, or if `index` cannot be written to. Raises ValueError
    for a damaged file, for files of different genes or forms, for a matrix in CSC, for data that lie in another file,
    and for invalid arguments. A minibatch raises it for a value that does not fit into uint16. An object that is
    overwritten while it is open raises OSError. Objects whose matrix is dense, or that only HDF5 can decode, raise
    ValueError.
    """
    paths = several(paths)
    remote = all_urls(paths)
    validate.choice("verify", verify, ("first", "always", "never"))
    validate.choice("output", output, get_args(Output))
    if storage and not remote:
        raise ValueError("storage is for URLs, and the paths are of files")
    opened: list[Csr] | None
    with Files() as files:
        if remote:
            urls = [str(path) for path in paths]
            fds = files.open_objects(urls, storage or {})
            opened = h5ad_remote.open_csr(urls, fds, matrix, files, index, storage or {})
        else:
            fds = [files.open(path) for path in paths]
            matrices = []
            opened = None if index is None else _indexed(Path(index), paths, fds, matrix, files)
            if opened is None:
                matrices = [_stored(path, fd, matrix, files) for path, fd in zip(paths, fds, strict=True)]
                _check_forms(matrices)
                if matrices[0].form == "dense":
                    _check_genes(matrices, matrix)
                    return _open_dense(matrices, output, files)
                named = index is not None or len(matrices) > 1
                opened = [_csr(stored, matrix, files, named) for stored in matrices]
                if len({csr.genes for csr in opened}) > 1:
                    _check_genes(matrices, matrix)
        parts = []
        for path, fd, csr in zip(paths, fds, opened, strict=True):
            with describing(path):
                parts.append(part(f"{path}: /{matrix}", fd, csr, files.size(fd), verify, files.read))
        files.check()
        if index is not None and not remote and matrices:
            for path, fd, csr in zip(paths, fds, opened, strict=True):
                h5ad_index.keep(Path(index), path, files.identity(fd), matrix, csr)
        warn_if_slow(parts)
        return Matrix(parts, opened[0].n_genes, output=output, threads=threads, disk=disk, files=files)


def _indexed(
    folder: Path, paths: Sequence[Path | str], fds: Sequence[int], matrix: str, files: Files
) -> list[Csr] | None:
    """What is kept of all files; None if one is missing there, or if they do not have the same genes."""
    found: list[Csr] = []
    for path, fd in zip(paths, fds, strict=True):
        csr = h5ad_index.kept(folder, path, files.identity(fd), matrix)
        if csr is None or (csr.n_genes, csr.genes) != (found or [csr])[0][:2]:
            return None
        found.append(csr)
    return found


def _stored(path: Path | str, fd: int, matrix: str, files: Files) -> StoredMatrix:
    return stored_matrix(files.hdf5(fd), str(path), fd, matrix)


def _csr(stored: StoredMatrix, matrix: str, files: Files, named: bool) -> Csr:
    with describing(stored.path):
        fields = csr_fields(stored, matrix, files.size(stored.fd), files.read, named=named)
        return Csr(**{name: read() for name, read in fields.items()})


def _check_forms(matrices: Sequence[StoredMatrix]) -> None:
    """ValueError unless all matrices have one form and the same number of genes."""
    first = matrices[0]
    for stored in matrices:
        if (stored.form, stored.n_genes) != (first.form, first.n_genes):
            raise ValueError(
                f"{first.path} and {stored.path} differ in form or number of genes: "
                f"{first.form} with {first.n_genes:,} and {stored.form} with {stored.n_genes:,}"
            )


def _check_genes(matrices: Sequence[StoredMatrix], matrix: str) -> None:
    """ValueError unless all matrices have the same genes."""
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


def _dense(stored: StoredMatrix, files: Files) -> Tiles | ThroughRows:
    name, dataset = f"{stored.path}: {stored.x.name}", stored.x
    layout = layout_of(name, dataset)
    if isinstance(layout, str) or not layout.chunks:
        return ThroughRows(name, dataset)
    codec, where = codec_of(name, stored.fd, layout, files.size(stored.fd))
    if isinstance(where, Table):
        validate.disjoint([(name, where.place, where.size)])
    return Tiles(name, dataset.shape, dataset.chunks, codec, where)
