"""Mutations of h5ad files: of chunks, HDF5 metadata and attributes."""

import h5py
import numpy as np

from tests.fuzz.contents import InapplicableError, hdf5, n_parts
from tests.fuzz.mutate import mutation, strike, struck
from tests.fuzz.mutate_arrays import blosc_header
from tests.fuzz.stores import Store

Rng = np.random.Generator
HDF5 = ("h5ad", "dense")


def _arrays(x: h5py.Group | h5py.Dataset) -> list[h5py.Dataset]:
    return [x] if isinstance(x, h5py.Dataset) else [x[name] for name in ("data", "indices", "indptr")]


def _part(store: Store, rng: Rng) -> int:
    return int(rng.integers(n_parts(store)))


def _ranges(dataset: h5py.Dataset) -> list[tuple[int, int]]:
    """(offset in the file, size in bytes) of each chunk of a dataset; of all data if it is not chunked."""
    if dataset.chunks:
        infos = [dataset.id.get_chunk_info(i) for i in range(dataset.id.get_num_chunks())]
        return [(info.byte_offset, info.size) for info in infos]
    place = dataset.id.get_offset()
    return [] if place is None else [(place, dataset.id.get_storage_size())]


def _choice(rng: Rng, items: list):
    if not items:
        raise InapplicableError("nothing to choose from")
    return items[int(rng.integers(len(items)))]


@mutation("within a chunk", *HDF5)
def within_a_chunk(store: Store, rng: Rng) -> str:
    part = _part(store, rng)
    with hdf5(store, part, "r") as x:
        dataset = _choice(rng, _arrays(x))
        name, (start, size) = dataset.name, _choice(rng, _ranges(dataset))
    return f"{name}, chunk at {start}: {struck(store, store.form.paths[part], rng, start, start + size)}"


@mutation("outside of chunks", *HDF5)
def outside_of_chunks(store: Store, rng: Rng) -> str:
    """Damages bytes outside of the data: chunk tables, object headers, names or attributes."""
    part = _part(store, rng)
    file = store.form.paths[part]
    content = store.read(file)
    free = np.ones(len(content), bool)
    with hdf5(store, part, "r") as x:
        for dataset in _arrays(x):
            for start, size in _ranges(dataset):
                free[start : start + size] = False
    used = np.flatnonzero(free & (np.frombuffer(bytes(content), np.uint8) != 0))  # most zeros are unused space
    descriptions = []
    for _ in range(int(rng.choice([1, 1, 1, 3]))):
        at = int(rng.choice(used))
        descriptions.append(strike(content, at, min(at + int(rng.choice([1, 8])), len(content)), rng))
    store.write(file, bytes(content))
    return f"{file}: {', '.join(descriptions)}"


@mutation("chunk table", *HDF5, traits=("chunked",))
def chunk_table(store: Store, rng: Rng) -> str:
    """Damages a B-tree node, or a structure of the newer chunk indexes."""
    part = _part(store, rng)
    file = store.form.paths[part]
    content = store.read(file)
    marks = [b"TREE", b"FADB", b"FAHD", b"EAHD", b"EADB", b"EAIB", b"SNOD", b"HEAP", b"OHDR"]
    offsets = []
    for mark in marks[: 6 if rng.random() < 0.7 else 9]:
        at = content.find(mark)
        while at >= 0:
            offsets.append(at)
            at = content.find(mark, at + 1)
    at = _choice(rng, offsets)
    mark = bytes(content[at : at + 4])
    return f"{mark!r} at {at}: {struck(store, file, rng, at, at + int(rng.choice([8, 24, 80, 400])))}"


def _chunks(store: Store, rng: Rng, edit) -> str:
    """Calls edit(dataset, first element of a chunk, first element of another chunk) on an array of several chunks."""
    part = _part(store, rng)
    with hdf5(store, part) as x:
        dataset = _choice(rng, [each for each in _arrays(x) if each.chunks and each.id.get_num_chunks() > 1])
        n = dataset.id.get_num_chunks()
        a, b = (dataset.id.get_chunk_info(int(i)).chunk_offset for i in rng.choice(n, 2, replace=False))
        return f"part {part}, {dataset.name}: {edit(dataset, a, b)}"


@mutation("chunks swapped", *HDF5, traits=("chunked",))
def chunks_swapped(store: Store, rng: Rng) -> str:
    def edit(dataset: h5py.Dataset, a: tuple, b: tuple) -> str:
        (_, left), (_, right) = dataset.id.read_direct_chunk(a), dataset.id.read_direct_chunk(b)
        dataset.id.write_direct_chunk(a, right)
        dataset.id.write_direct_chunk(b, left)
        return f"{a} and {b}"

    return _chunks(store, rng, edit)


@mutation("chunk of another length", *HDF5, traits=("chunked",))
def chunk_of_another_length(store: Store, rng: Rng) -> str:
    def edit(dataset: h5py.Dataset, a: tuple, b: tuple) -> str:
        _, old = dataset.id.read_direct_chunk(a)
        new = [old[:-1], old[: len(old) // 2], old[:1], old + b"\0", old + old, old + rng.bytes(40), b"\0" * len(old)]
        chosen = new[int(rng.integers(len(new)))]
        dataset.id.write_direct_chunk(a, chosen)
        return f"{a}, {len(chosen)} bytes, was {len(old)}"

    return _chunks(store, rng, edit)


@mutation("chunk decodes to another length", *HDF5, traits=("chunked",))
def chunk_decodes_to_another_length(store: Store, rng: Rng) -> str:
    """Replaces a chunk by a valid one of more or fewer elements, which HDF5 wrote with the same filters."""

    def edit(dataset: h5py.Dataset, a: tuple, b: tuple) -> str:
        size = tuple(
            max(1, int(c * f)) for c, f in zip(dataset.chunks, [rng.choice([0.5, 0.99, 1.01, 2])] * 2, strict=False)
        )
        created = dataset.id.get_create_plist().copy()
        created.set_chunk(size)
        with h5py.File("beside", "w", driver="core", backing_store=False) as beside:
            space = h5py.h5s.create_simple(size)
            scaled = h5py.h5d.create(beside.id, b"scaled", dataset.id.get_type(), space, created)
            h5py.Dataset(scaled)[...] = np.ones(size, dataset.dtype)
            _, packed = scaled.read_direct_chunk((0,) * len(size))
        dataset.id.write_direct_chunk(a, packed)
        return f"{a}: {size} instead of {dataset.chunks}"

    return _chunks(store, rng, edit)


@mutation("filter mask", *HDF5, traits=("chunked",))
def filter_mask(store: Store, rng: Rng) -> str:
    def edit(dataset: h5py.Dataset, a: tuple, b: tuple) -> str:
        mask, packed = int(rng.choice([1, 2, 3, 2**32 - 1])), dataset.id.read_direct_chunk(a)[1]
        if rng.random() < 0.5:  # the chunk is in fact not filtered
            packed = np.resize(np.arange(3), dataset.chunks).astype(dataset.dtype).tobytes()
        dataset.id.write_direct_chunk(a, packed, mask)
        return f"{a}: {mask}"

    return _chunks(store, rng, edit)


@mutation("Blosc header", "h5ad", traits=("blosc",))
def hdf5_blosc_header(store: Store, rng: Rng) -> str:
    def edit(dataset: h5py.Dataset, a: tuple, b: tuple) -> str:
        chunk = bytearray(dataset.id.read_direct_chunk(a)[1])
        description = blosc_header(chunk, rng)
        dataset.id.write_direct_chunk(a, bytes(chunk))
        return f"{a}: {description}"

    return _chunks(store, rng, edit)


@mutation("shape of an array", *HDF5, traits=("chunked",))
def shape_of_an_array(store: Store, rng: Rng) -> str:
    """Resizes an array with HDF5: chunks beyond the new shape are lost, additional chunks were never written."""
    part = _part(store, rng)
    with hdf5(store, part) as x:
        dataset = _choice(rng, _arrays(x))
        shape = tuple(int(rng.choice([0, 1, n // 2, n - 1, n + 1, n + 500, 2**40])) for n in dataset.shape)
        dataset.resize(shape)
        return f"part {part}, {dataset.name}: {shape}"


SHAPES = [(2**40, 2**40), (90, 2**40), (2**40, 50), (90, 49), (90, 51), (90, 0), (0, 50), (-1, 50), (90, -50)]
SHAPES += [(91, 50), (50,), (), (90, 50, 1), "ninety by fifty", (90.0, 50.5), (2**63 - 1, 2**31)]


@mutation("attribute shape", "h5ad")
def attribute_shape(store: Store, rng: Rng) -> str:
    part, shape = _part(store, rng), SHAPES[int(rng.integers(len(SHAPES)))]
    with hdf5(store, part) as x:
        x.attrs["shape"] = shape
    return f"part {part}: {shape}"


@mutation("attribute shape of all", "h5ad")
def attribute_shape_of_all(store: Store, rng: Rng) -> str:
    genes = int(rng.choice([2**40, 2**31, 51, 49, 0, 1]))
    for part in range(n_parts(store)):
        with hdf5(store, part) as x:
            x.attrs["shape"] = (x.attrs["shape"][0], genes)
    return f"{genes} genes"


@mutation("other attributes", *HDF5)
def other_attributes(store: Store, rng: Rng) -> str:
    part = _part(store, rng)
    with hdf5(store, part) as x:
        name = str(rng.choice(["encoding-type", "encoding-version", "shape"]))
        new = _choice(rng, ["csc_matrix", "array", "", "csr_matrix", 5, b"\xff\xfe", None, [1, 2], "x" * 3000])
        if new is None:
            del x.attrs[name]
        else:
            x.attrs[name] = new
    return f"part {part}, {name}: {new!r}"[:80]


@mutation("parts of the matrix gone", *HDF5)
def parts_gone(store: Store, rng: Rng) -> str:
    """Deletes the matrix or an array, or replaces it by a dangling link, a link to itself, or a group."""
    part, how = _part(store, rng), int(rng.integers(5))
    with hdf5(store, part) as x:
        parent, name = x.parent, x.name.rsplit("/", 1)[1]
        if isinstance(x, h5py.Group) and rng.random() < 0.7:
            parent, name = x, str(rng.choice(["data", "indices", "indptr"]))
        del parent[name]
        if how == 1:
            parent[name] = h5py.SoftLink("/nowhere")
        elif how == 2:
            parent[name] = h5py.ExternalLink("nowhere.h5", "/X")
        elif how == 3:
            parent.create_group(name)
        elif how == 4:
            parent[name] = h5py.SoftLink(f"{parent.name}/{name}")
        return f"part {part}, {parent.name}/{name}, {how}"


@mutation("array beyond the file", "h5ad")
def array_beyond_the_file(store: Store, rng: Rng) -> str:
    """Replaces an array by one whose data lie in an external file, in a virtual dataset, or in the object header."""
    part, name = _part(store, rng), str(rng.choice(["data", "indices", "indptr"]))
    with hdf5(store, part) as x:
        values, how = x[name][:], int(rng.integers(3))
        del x[name]
        if how == 0:
            other = store.form.paths[1 - part]
            x.create_dataset(name, values.shape, values.dtype, external=[(other, 0, values.nbytes)])
        elif how == 1:
            layout = h5py.VirtualLayout(values.shape, values.dtype)
            layout[:] = h5py.VirtualSource(store.form.paths[1 - part], f"{x.name}/{name}", values.shape)
            x.create_virtual_dataset(name, layout)
        else:
            created = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            created.set_layout(h5py.h5d.COMPACT)
            space, kind = h5py.h5s.create_simple(values.shape), h5py.h5t.py_create(values.dtype)
            h5py.Dataset(h5py.h5d.create(x.id, name.encode(), kind, space, created))[:] = values
    return f"part {part}, {name}, {how}"
