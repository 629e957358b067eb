"""The layout of h5ad files in object storage: from what is kept of it, or by HDF5, for all files at the same time."""

import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from loadstone.formats import genes, h5ad_index
from loadstone.formats.h5ad_index import Csr
from loadstone.formats.h5ad_matrix import csr_fields, stored_matrix
from loadstone.reading.arrays import Through
from loadstone.reading.files import Files, describing
from loadstone.reading.validate import one_line
from loadstone.remote.folder import RemoteFolder
from loadstone.remote.metadata import Metadata, in_rounds
from loadstone.remote.objects import CONNECTIONS, Object
from loadstone.remote.urls import Storage, is_url


def open_csr(
    urls: Sequence[str], fds: Sequence[int], matrix: str, files: Files, index: Path | str | None, storage: Storage
) -> list[Csr]:
    """The CSR matrices of objects. What is not kept in `index` is read, and kept there.

    fds: the numbers of the objects in `files`. index, storage: see `open_h5ad`. OSError if an object or a stated index
    cannot be read or written. ValueError for a damaged or dense matrix, for one that only HDF5 can decode, and for
    objects of different genes.
    """
    folder = RemoteFolder(str(index), storage) if is_url(index) else Path(index or h5ad_index.usual())
    with ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="metadata") as pool:
        identities = [files.identity(fd) for fd in fds]
        found = list(pool.map(lambda url, identity: h5ad_index.kept(folder, url, identity, matrix), urls, identities))
        missing = [i for i, csr in enumerate(found) if csr is None]
        metadata = [Metadata(files.objects[fds[i]]) for i in missing]
        known: list[dict[str, Any]] = [{} for _ in missing]
        read = in_rounds(metadata, lambda k: _read(metadata[k], fds[missing[k]], matrix, known[k]), pool)
        try:
            for i, csr in zip(missing, read, strict=True):
                h5ad_index.keep(folder, urls[i], identities[i], matrix, csr)
        except OSError as error:
            if index is not None:
                raise
            warnings.warn(
                f"{folder} cannot be written to ({one_line(error)}), so every opening of these URLs reads their "
                "layout again; name another folder with index=",
                stacklevel=3,
            )
    by_number = dict(zip(missing, read, strict=True))
    opened = [by_number.get(i) or csr for i, csr in enumerate(found)]
    result = [csr for csr in opened if csr is not None]
    _check_alike([files.objects[fd] for fd in fds], result, matrix)
    return result


def _read(metadata: Metadata, fd: int, matrix: str, known: dict[str, Any]) -> Csr:
    """The matrix of an object. known: the fields that were read before, to which those are added that can be read."""
    url = metadata.source.url
    with describing(url), h5py.File(metadata, "r") as file:
        stored = stored_matrix(file, url, fd, matrix)
        if stored.form == "dense":
            raise ValueError(f"{url}: /{matrix} is dense; dense matrices are read from a disk, so copy the file there")
        fields = csr_fields(
            stored,
            matrix,
            metadata.source.size,
            lambda _, size, place: metadata.bytes_at(place, size),
            named=True,
            expect=lambda places, sizes: _expect(metadata, places, sizes),
        )
        missing: Exception | None = None
        for name in fields.keys() - known.keys():
            try:
                known[name] = fields[name]()
            except Exception as error:
                if not metadata.wanted:
                    raise
                missing = error  # the other fields are tried too, so that all that is missing comes at once
        if missing:
            raise missing
        csr = Csr(**known)
        for each in (csr.data, csr.indices):
            if isinstance(each, Through):
                raise ValueError(
                    f"{each.name} {each.slow}; so it is read from a disk, and the file must be copied there"
                )
    return csr


def _expect(metadata: Metadata, places: np.ndarray, sizes: np.ndarray) -> None:
    for place, size in zip(places.tolist(), sizes.tolist(), strict=True):
        metadata.want(place, size)


def _check_alike(objects: Sequence[Object], opened: Sequence[Csr], matrix: str) -> None:
    """ValueError if the matrices have different genes; it names the first object that differs, and the difference."""
    for other, csr in zip(objects, opened, strict=True):
        if csr.n_genes != opened[0].n_genes:
            raise ValueError(
                f"{objects[0].url} and {other.url} differ in their number of genes: {opened[0].n_genes:,} and "
                f"{csr.n_genes:,}"
            )
        if csr.genes != opened[0].genes:
            with ExitStack() as stack:
                two = [(each.url, Metadata(each, waits=True)) for each in (objects[0], other)]
                genes.check_same([(url, stack.enter_context(h5py.File(file, "r"))) for url, file in two], matrix)
            raise ValueError(f"{objects[0].url} and {other.url} differ in the bytes of the names of their genes")
