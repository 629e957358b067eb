"""Mutations of the CSR arrays of any store, of gene names, and of Blosc headers."""

from collections.abc import Callable

import anndata as ad
import numpy as np
import pandas as pd

from tests.fuzz.contents import InapplicableError, get, group, n_parts, put
from tests.fuzz.mutate import mutation
from tests.fuzz.stores import GENES, Store

CSR = ("h5ad", "zarr", "arrow", "scdl")
Rng = np.random.Generator


def some_part(store: Store, rng: Rng) -> int:
    return int(rng.integers(n_parts(store)))


def _place(values: np.ndarray, rng: Rng) -> int:
    if len(values) < 3:
        raise InapplicableError("too short")
    return int(rng.integers(1, len(values) - 1))


def _added(amount: int) -> Callable[[np.ndarray, Rng], np.ndarray]:
    def edit(v: np.ndarray, rng: Rng) -> np.ndarray:
        v[_place(v, rng)] += amount
        return v

    return edit


def _placed(amount: int) -> Callable[[np.ndarray, Rng], np.ndarray]:
    def edit(v: np.ndarray, rng: Rng) -> np.ndarray:
        v[_place(v, rng)] = amount
        return v

    return edit


def _first(value: int) -> Callable[[np.ndarray, Rng], np.ndarray]:
    def edit(v: np.ndarray, rng: Rng) -> np.ndarray:
        v[:1] = value
        return v

    return edit


def _swapped(v: np.ndarray, rng: Rng) -> np.ndarray:
    moves = np.flatnonzero(np.diff(v)) if len(v) > 1 else []
    if not len(moves):
        raise InapplicableError("all are equal")
    i = int(rng.choice(moves))
    v[[i, i + 1]] = v[[i + 1, i]]
    return v


def _beyond(v: np.ndarray, rng: Rng) -> np.ndarray:
    i = _place(v, rng)
    v[i:] += int(rng.choice([1, 1000, 10**6]))
    return v


def _last(v: np.ndarray, rng: Rng) -> np.ndarray:
    v[-1:] += int(rng.choice([-1, 1, 1000, 2**31, -(10**6)]))
    return v


def _cut(v: np.ndarray, rng: Rng) -> np.ndarray:
    return v[: int(rng.choice([0, 1, len(v) // 2, len(v) - 1]))]


def _longer(v: np.ndarray, rng: Rng) -> np.ndarray:
    return np.r_[v, np.full(int(rng.choice([1, 5])), v[-1] if rng.random() < 0.5 else 0)]


INDPTR = {
    "first is 5": _first(5),
    "first is -100": _first(-100),
    "first is -10**6": _first(-(10**6)),
    "+ 2**31": _added(2**31),
    "+ 1000": _added(1000),
    "- 1000": _added(-1000),
    "2**62": _placed(2**62),
    "negative": _placed(-1),
    "neighbours swapped": _swapped,
    "beyond the data": _beyond,
    "last": _last,
    "all zero": lambda v, rng: np.zeros_like(v),
    "cut": _cut,
    "longer": _longer,
}
INDICES = {
    "negative": _placed(-1),
    "very negative": _placed(-(2**31)),
    "n_genes": _placed(GENES),
    "n_genes + 12": _placed(GENES + 12),
    "2**31 - 1": _placed(2**31 - 1),
    "+ 2**32": _added(2**32),
    "+ 2**32 + 1": _added(2**32 + 1),
    "last is n_genes": lambda v, rng: np.r_[v[:-1], GENES],
    "doubled": lambda v, rng: np.r_[v[:1], v[:1], v[2:]],
}


def _edits(name: str, edits: dict[str, Callable[[np.ndarray, Rng], np.ndarray]]) -> None:
    """Registers one mutation for each edit. name: the array, "indptr" or "indices". edits: functions by label."""
    for label, edit in edits.items():

        def apply(store: Store, rng: Rng, edit: Callable = edit) -> str:
            part = some_part(store, rng)
            old = get(store, part, name)
            if not len(old):
                raise InapplicableError("it is empty")
            new = edit(old.astype(np.int64), rng)
            fits = len(new) == 0 or (np.iinfo(old.dtype).min <= new.min() and new.max() <= np.iinfo(old.dtype).max)
            put(store, part, name, new.astype(old.dtype) if fits else new)
            where = np.flatnonzero(old[: len(new)] != new[: len(old)])
            return f"part {part}, {len(where)} entries of {len(new)}, the first {where[:1].tolist()}"

        mutation(f"{name}: {label}", *CSR)(apply)


_edits("indptr", INDPTR)
_edits("indices", INDICES)


@mutation("lengths differ", "h5ad", "zarr", "scdl")
def lengths_differ(store: Store, rng: Rng) -> str:
    part, name = some_part(store, rng), str(rng.choice(["data", "indices"]))
    values = get(store, part, name)
    n = int(rng.choice([0, 1, len(values) // 2, len(values) - 1, len(values) + 1, len(values) + 500]))
    put(store, part, name, np.resize(values, n) if n else values[:0])
    return f"part {part}, {name}: {n} of {len(values)}"


@mutation("another type", "h5ad", "zarr", "scdl")
def another_type(store: Store, rng: Rng) -> str:
    """Casts an array to another dtype: of numbers, booleans, complex numbers or bytes."""
    part, name = some_part(store, rng), str(rng.choice(["data", "indices", "indptr"]))
    old = get(store, part, name)
    kinds = ["u1", "u2", "u4", "u8", "f2", "f4", "f8"]
    kinds += [] if store.form.group == "scdl" else ["i1", "i2", "i8", ">i4", ">f4", "?", "c8"]
    kinds += ["S4"] if store.form.group == "h5ad" else []
    kind = str(rng.choice(kinds))
    with np.errstate(all="ignore"):
        put(store, part, name, old.astype(kind))
    return f"part {part}, {name}: {kind}"


@mutation("two-dimensional", "h5ad", "zarr")
def two_dimensional(store: Store, rng: Rng) -> str:
    """Replaces an array by one with its values in two dimensions, or by a scalar with its first value."""
    part, name = some_part(store, rng), str(rng.choice(["data", "indices", "indptr"]))
    values = get(store, part, name)
    n = len(values) // 2 * 2
    shape = [(n // 2, 2), (1, len(values)), ()][int(rng.integers(3))]
    new = values[0] if shape == () else values[: int(np.prod(shape))].reshape(shape)
    with group(store, part) as root:
        x = root[store.form.matrix]
        del x[name]
        if store.form.group == "h5ad":
            x[name] = new
        else:
            x.create_array(name, data=np.asarray(new))
    return f"part {part}, {name}: {shape}"


@mutation("names of genes", "h5ad", "dense", "zarr")
def names_of_genes(store: Store, rng: Rng) -> str:
    """In one file, exchanges two gene names; or repeats, renames, removes or adds one; or removes the var table."""
    part, how = some_part(store, rng), int(rng.integers(6))
    with group(store, part) as root:
        table = "raw/var" if store.form.matrix == "raw/X" else "var"
        var = ad.io.read_elem(root[table])
        names, (i, j) = list(var.index), rng.choice(len(var), 2, replace=False)
        if how == 0:
            names[i], names[j] = names[j], names[i]
        elif how in (1, 2):
            names[i] = names[j] if how == 1 else "another"
        elif how == 3:
            del names[i]
        elif how == 4:
            names.append("another")
        del root[table]
        if how < 5:
            ad.io.write_elem(root, table, pd.DataFrame(index=names))
    return f"part {part}, {['exchanged', 'twice', 'another', 'one less', 'one more', 'none'][how]}, {i} and {j}"


def blosc_header(chunk: bytearray, rng: Rng) -> str:
    """Damages a Blosc chunk in place, mostly its header: versions, flags, typesize, nbytes, blocksize, cbytes."""
    if len(chunk) < 20:
        raise InapplicableError("not a Blosc chunk")
    how = int(rng.integers(6))
    if how == 0:
        chunk[12:16], chunk[16:20] = (2**31 - 1).to_bytes(4, "little"), (2**30).to_bytes(4, "little")
        return "cbytes and the first block's offset"
    if how == 1:
        at = int(rng.integers(4))
        chunk[at] = int(rng.choice([0, 1, 2, 4, 8, 0x21, 0x33, 0x81, 255]))
        return f"byte {at} is {chunk[at]}"
    if how == 2:
        del chunk[len(chunk) // 2 :]
        return "cut in half"
    if how == 3:
        at = int(rng.integers(16, len(chunk) - 3))  # offsets of blocks, and lengths within them
        chunk[at : at + 4] = int(rng.choice([0, 1, 2**30, 2**31 - 1, 2**32 - 1])).to_bytes(4, "little")
        return f"4 bytes at {at}"
    field = int(rng.choice([4, 8, 12, 16]))
    old = int.from_bytes(chunk[field : field + 4], "little")
    new = int(rng.choice([0, 1, 2**30, 2**31 - 1, 2**32 - 1, old - 1, old + 1, old * 2, old // 2])) % 2**32
    chunk[field : field + 4] = new.to_bytes(4, "little")
    return f"field {field} is {new}, was {old}"
