"""Mutations of zarr stores: shard indexes, and chunks within shards or files."""

import struct

import numpy as np

from tests.fuzz.contents import InapplicableError
from tests.fuzz.mutate import WORDS, mutation, struck
from tests.fuzz.mutate_arrays import blosc_header
from tests.fuzz.stores import Store

Rng = np.random.Generator
PER_SHARD = 5  # chunks in the seeds
INDEX = 16 * PER_SHARD


def crc32c(content: bytes) -> int:
    import google_crc32c

    return google_crc32c.value(content)


def _chunk_file(store: Store, rng: Rng) -> str:
    """The name of a random chunk or shard file, seldom one of indptr."""
    names = [name for name in store.files() if name.rsplit("/", 1)[-1][0].isdigit() or "/c/" in name]
    chosen = [name for name in names if "indptr" not in name]
    names = chosen if chosen and rng.random() < 0.9 else names
    if not names:
        raise InapplicableError("no chunks")
    return str(rng.choice(names))


def _shard(store: Store, rng: Rng) -> tuple[str, bytearray, int]:
    """(name of a random shard file, its content, the offset of its index in bytes)."""
    names = [name for name in store.files() if "/c/" in name and "indptr" not in name]
    if not names:
        raise InapplicableError("no shards")
    name = str(rng.choice(names))
    content = store.read(name)
    if len(content) < INDEX + 4:
        raise InapplicableError("the shard is cut")
    return name, content, 0 if "start" in store.form.traits else len(content) - INDEX - 4


def _entry(rng: Rng, table: np.ndarray, length: int) -> str:
    """Edits one or two entries of a shard index in place. Returns a description.

    table: the index, uint64 (chunks, 2): offset and size in bytes. length: that of the shard file in bytes.
    """
    used = np.flatnonzero(table[:, 0] != 2**64 - 1)
    if len(used) < 2:
        raise InapplicableError("one chunk")
    i, j = rng.choice(used, 2, replace=False)
    how = int(rng.integers(7))
    if how == 0:
        table[[i, j]] = table[[j, i]]
        return f"entries {i} and {j} swapped"
    if how == 1:
        table[i, 0] = table[j, 0] + np.uint64(rng.integers(0, 9))
        return f"entry {i} overlaps {j}"
    if how == 2:
        table[i] = 2**64 - 1
        return f"entry {i} as never written"
    if how == 3:
        table[i, 0] = np.uint64(length + int(rng.integers(-8, 5000)))
        return f"entry {i} beyond the end"
    column = int(rng.integers(2))
    old = int(table[i, column])
    choices = [0, 1, 8, 15, 16, 17, old - 1, old + 1, old // 2] if how < 6 else WORDS
    value = choices[int(rng.integers(len(choices)))] % 2**64
    table[i, column] = np.uint64(value)
    return f"entry {i}, {'size' if column else 'offset'} is {value}"


def _index(store: Store, rng: Rng, fix_checksum: bool) -> str:
    name, content, at = _shard(store, rng)
    table = np.frombuffer(bytes(content[at : at + INDEX]), "<u8").reshape(-1, 2).copy()
    description = _entry(rng, table, len(content))
    content[at : at + INDEX] = table.tobytes()
    if fix_checksum:
        content[at + INDEX : at + INDEX + 4] = struct.pack("<I", crc32c(table.tobytes()))
    store.write(name, bytes(content))
    return f"{name}: {description}"


@mutation("shard index", "zarr", traits=("sharded",))
def shard_index(store: Store, rng: Rng) -> str:
    return _index(store, rng, fix_checksum=False)


@mutation("shard index, checksum right", "zarr", traits=("sharded",))
def shard_index_checksum_right(store: Store, rng: Rng) -> str:
    return _index(store, rng, fix_checksum=True)


@mutation("shard index's checksum", "zarr", traits=("sharded",))
def shard_checksum(store: Store, rng: Rng) -> str:
    name, _, at = _shard(store, rng)
    return struck(store, name, rng, at + INDEX, at + INDEX + 4)


def _span(store: Store, rng: Rng) -> tuple[str, bytearray, int, int]:
    """(name of a file, its content, start and stop of one chunk in it in bytes)."""
    if "sharded" not in store.form.traits:
        name = _chunk_file(store, rng)
        content = store.read(name)
        return name, content, 0, len(content)
    name, content, at = _shard(store, rng)
    table = np.frombuffer(bytes(content[at : at + INDEX]), "<u8").reshape(-1, 2)
    spans = [(int(p), int(p + s)) for p, s in table.astype(object) if p + s <= len(content) and s]
    if not spans:
        raise InapplicableError("no chunks")
    return name, content, *spans[int(rng.integers(len(spans)))]


@mutation("within a chunk of zarr", "zarr")
def within_a_chunk(store: Store, rng: Rng) -> str:
    name, _, start, stop = _span(store, rng)
    return f"chunk at {start}, {struck(store, name, rng, start, stop)}"


@mutation("Blosc header in zarr", "zarr", traits=("blosc",))
def blosc(store: Store, rng: Rng) -> str:
    name, content, start, stop = _span(store, rng)
    chunk = content[start:stop]
    description = blosc_header(chunk, rng)
    if "sharded" in store.form.traits:
        chunk += bytes(stop - start - len(chunk))  # a shortened chunk is padded with zeros
    content[start:stop] = chunk
    store.write(name, bytes(content))
    return f"{name}, chunk at {start}: {description}"


@mutation("chunk file missing", "zarr")
def chunk_missing(store: Store, rng: Rng) -> str:
    name = _chunk_file(store, rng)
    (store.folder / name).unlink()
    return name


@mutation("chunk file of another length", "zarr")
def chunk_of_another_length(store: Store, rng: Rng) -> str:
    name = _chunk_file(store, rng)
    old = bytes(store.read(name))
    new = [b"", old[:-1], old[: len(old) // 2], old[:1], old + b"\0", old + old, old + rng.bytes(40)][
        int(rng.integers(7))
    ]
    store.write(name, new)
    return f"{name}: {len(new)} bytes, was {len(old)}"


@mutation("chunk file of another", "zarr")
def chunk_of_another(store: Store, rng: Rng) -> str:
    a, b = _chunk_file(store, rng), _chunk_file(store, rng)
    store.write(a, bytes(store.read(b)))
    return f"{a} holds {b}"
