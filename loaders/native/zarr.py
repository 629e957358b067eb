"""CSR in an AnnData zarr group, version 2 or 3, sharded or not.

zarr is asked for the array's layout, and a shard for its index of chunks. After that the chunks are read straight
from the files and decoded by threads.
"""

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from loaders.native import codecs
from loaders.native.arrays import Array, Chunked, Table, Through, open_file
from loaders.native.matrix import Part

CHECKSUM_BYTES = 4  # of a shard's index
NOWHERE = np.uint64(2**64 - 1)  # the place of a chunk that was never written


def open_parts(groups: Sequence[Path], opened: ExitStack) -> list[Part]:
    """The matrix X of each of the groups."""
    return [_part(group, opened) for group in groups]


def _part(path: Path, opened: ExitStack) -> Part:
    import zarr

    x = zarr.open_group(path, mode="r")["X"]
    indptr = x["indptr"][:].astype(np.int64, copy=False)
    return Part(indptr, *(_array(path / "X" / name, x[name], opened) for name in ("data", "indices")))


def _array(folder: Path, array, opened: ExitStack) -> Array:
    name, chunk = str(folder), array.chunks[0]
    codec = _codec(array)
    if codec is None:
        return Through(name, array, "no other codec is at hand for its compressors")
    where = (_from_shards if array.shards else _from_files)(folder, array, array.metadata.encode_chunk_key, opened)
    if where is None:
        return Through(name, array, "some of its chunks were never written")
    return Chunked(name, array.shape[0], chunk, codec, where)


def _codec(array) -> codecs.Codec | None:
    """The codec of its chunks; None for one, or a chain of some, that only zarr knows."""
    compressors = array.compressors
    if array.filters or len(compressors) > 1:
        return None
    kind = type(compressors[0]).__name__.lower().removesuffix("codec") if compressors else "plain"
    known = {"plain": codecs.plain, "blosc": codecs.blosc, "zstd": codecs.zstd}
    return known[kind](array.dtype) if kind in known else None


def _from_files(folder: Path, array, encode: Callable, opened: ExitStack) -> Callable[[int], bytes] | None:
    n_chunks = -(-array.shape[0] // array.chunks[0])
    if not all((folder / encode((i,))).exists() for i in range(n_chunks)):
        return None
    return lambda i: (folder / encode((i,))).read_bytes()


def _from_shards(folder: Path, array, encode: Callable, opened: ExitStack) -> Table | None:
    per_shard = array.shards[0] // array.chunks[0]
    fds, tables = [], []
    for shard in range(-(-array.shape[0] // array.shards[0])):
        path = folder / encode((shard,))
        if not path.exists():
            return None
        fds.append(open_file(path, opened))
        index_bytes = 16 * per_shard
        leads = array.metadata.codecs[0].index_location == "start"
        at = 0 if leads else os.fstat(fds[-1]).st_size - index_bytes - CHECKSUM_BYTES
        tables.append(np.frombuffer(os.pread(fds[-1], index_bytes, at), "<u8").reshape(-1, 2))
    table = np.concatenate(tables)[: -(-array.shape[0] // array.chunks[0])]
    if (table[:, 0] == NOWHERE).any():
        return None
    place, size = table.T.astype(np.int64)
    return Table(np.array(fds), per_shard, place, size)


def obs_column(path: Path, name: str) -> np.ndarray:
    """A numeric column of the group's obs table."""
    import zarr

    return zarr.open_group(path, mode="r")[f"obs/{name}"][:]
