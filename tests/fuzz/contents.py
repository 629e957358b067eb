"""Reads and replaces the arrays of a store of any form."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import h5py
import numpy as np

from tests.fuzz.stores import SCDL_FILES, Store, write_scdl

SCDL_NAMES = {"data": "DATA", "indices": "COLPTR", "indptr": "ROWPTR"}


class InapplicableError(Exception):
    """Raised by a mutation that cannot be applied to this store."""


@contextmanager
def group(store: Store, part: int, mode: str = "r+") -> Iterator[Any]:
    """Opens one of the h5ad files or zarr groups of a store. part: its index."""
    path = store.folder / store.form.paths[part]
    if store.form.group == "zarr":
        import zarr

        yield zarr.open_group(path, mode=mode)
        return
    with h5py.File(path, mode) as file:
        yield file


@contextmanager
def hdf5(store: Store, part: int, mode: str = "r+") -> Iterator[h5py.Group | h5py.Dataset]:
    """Opens one of the h5ad files of a store and yields its matrix. part: the index of the file."""
    with group(store, part, mode) as file:
        yield file[store.form.matrix]


def n_parts(store: Store) -> int:
    """The number of files or groups with arrays; for Arrow, of record batches."""
    if store.form.group == "arrow":
        return len(arrow_buffers(store))
    return len(store.form.paths)


def get(store: Store, part: int, name: str) -> np.ndarray:
    """The array `name` of a part: "data", "indices" or "indptr".

    For Arrow, a part is a record batch, and the arrays are those of its column "genes": the offsets for "indptr", else
    the values. Raises InapplicableError for a dense matrix.
    """
    if store.form.group == "h5ad":
        with hdf5(store, part, "r") as x:
            return x[name][:]
    if store.form.group == "zarr":
        with group(store, part) as root:
            return root["X"][name][:]
    if store.form.group == "scdl":
        return _scdl(store)[SCDL_NAMES[name]]
    if store.form.group == "arrow":
        return arrow_buffers(store)[part].get(store, "genes", name)
    raise InapplicableError("a dense matrix")


def put(store: Store, part: int, name: str, values: np.ndarray) -> None:
    """Replaces an array, with the same chunks and codecs. In place for Arrow, and if dtype and shape do not change."""
    if store.form.group == "h5ad":
        with hdf5(store, part) as x:
            _put_hdf5(x, name, values)
    elif store.form.group == "zarr":
        with group(store, part) as root:
            _put_zarr(root["X"], name, values)
    elif store.form.group == "scdl":
        arrays = _scdl(store) | {SCDL_NAMES[name]: values}
        signed = {"int8": "uint8", "int16": "uint16", "int32": "uint32", "int64": "uint64"}
        arrays = {key: v.view(signed.get(str(v.dtype), v.dtype)) for key, v in arrays.items()}
        write_scdl(store.folder, arrays)
    elif store.form.group == "arrow":
        buffers = arrow_buffers(store)[part]
        for column in ("genes", "expressions") if name == "indptr" else ("genes",):
            buffers.put(store, column, name, values)
    else:
        raise InapplicableError("a dense matrix")


def _put_hdf5(x: h5py.Group, name: str, values: np.ndarray) -> None:
    old = x[name]
    if old.shape == values.shape and old.dtype == values.dtype:
        old[:] = values
        return
    created, chunk = old.id.get_create_plist(), old.chunks
    if chunk:
        created.set_chunk(chunk)  # the list that was read holds the item size of the old type
    del x[name]
    space = h5py.h5s.create_simple(values.shape, (h5py.h5s.UNLIMITED,) if chunk else None)
    kind = h5py.h5t.py_create(values.dtype, logical=True)
    h5py.Dataset(h5py.h5d.create(x.id, name.encode(), kind, space, created))[:] = values


def _put_zarr(x, name: str, values: np.ndarray) -> None:
    old = x[name]
    if old.shape == values.shape and old.dtype == values.dtype:
        old[:] = values
        return
    options = {"chunks": old.chunks, "compressors": old.compressors or None, "filters": old.filters or None}
    if old.shards:
        location = "start" if "start" in str(old.metadata.codecs[0].index_location) else "end"
        options["shards"] = {"shape": old.shards, "index_location": location}
    del x[name]
    x.create_array(name, data=values, **options)


def _scdl(store: Store) -> dict[str, np.ndarray]:
    from bionemo.scdl.schema.header import SCDLHeader

    infos = SCDLHeader.load(str(store.folder / "header.sch")).arrays
    return {
        info.name: np.fromfile(store.folder / SCDL_FILES[info.name], info.dtype.numpy_dtype_string) for info in infos
    }


class Batch(NamedTuple):
    """The buffers of an Arrow record batch in a file.

    places: (offset in the file, size in bytes, dtype) by (column, "indptr" or "values").
    """

    file: str
    places: dict[tuple[str, str], tuple[int, int, np.dtype]]

    def get(self, store: Store, column: str, name: str) -> np.ndarray:
        place, size, dtype = self.places[column, "indptr" if name == "indptr" else "values"]
        return np.frombuffer(bytes(store.read(self.file)[place : place + size]), dtype).copy()

    def put(self, store: Store, column: str, name: str, values: np.ndarray) -> None:
        place, size, dtype = self.places[column, "indptr" if name == "indptr" else "values"]
        content = store.read(self.file)
        new = values.astype(dtype).tobytes()[:size]  # values out of range wrap around
        if content[place : place + len(new)] == new:
            raise InapplicableError("nothing would change in place")
        content[place : place + len(new)] = new
        store.write(self.file, bytes(content))


def arrow_buffers(store: Store) -> list[Batch]:
    """All record batches of a store."""
    import pyarrow as pa

    batches = []
    for file in [name for name in store.files() if name.endswith(".arrow")]:
        content = pa.py_buffer((store.folder / file).read_bytes())
        with pa.ipc.open_stream(content) as stream:
            for batch in stream:
                places = {}
                for name in ("genes", "expressions"):
                    column = batch.column(name)
                    offsets, values = column.buffers()[1], column.values.buffers()[-1]
                    kind = np.dtype("i8" if "large" in str(column.type) else "i4")
                    size = (len(column) + 1) * kind.itemsize
                    places[name, "indptr"] = (offsets.address - content.address, size, kind)
                    dtype = np.dtype(column.values.type.to_pandas_dtype())
                    places[name, "values"] = (
                        values.address - content.address,
                        len(column.values) * dtype.itemsize,
                        dtype,
                    )
                batches.append(Batch(file, places))
    return batches
