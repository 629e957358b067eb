"""A CSR matrix in an AnnData zarr group on a disk or in object storage, zarr version 2 or 3, sharded or not.

When a group is opened, zarr reads the layout of the arrays, and the chunk index of each shard is read. After that,
threads read the chunks directly from the files and decode them. Only arrays whose codecs or shards loadstone does not
support are read through zarr.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from loadstone.codecs import registry
from loadstone.formats import genes
from loadstone.formats.zarr_objects import ChunkObjects, open_remote
from loadstone.reading import validate
from loadstone.reading.arrays import Array, Chunked, Table, Through
from loadstone.reading.disk import Disk
from loadstone.reading.files import Files, Stamp, all_urls, check_regular, describing, open_regular, several
from loadstone.reading.matrix import Matrix, Part, warn_if_slow
from loadstone.reading.minibatches import Output
from loadstone.remote.objects import CONNECTIONS
from loadstone.remote.urls import Storage, is_url

CHECKSUM_BYTES = 4  # of a shard's index
MOST_ELEMENTS = 2**40  # of a chunk; with more, the sizes and offsets of chunks might not fit into 64 bits
NOWHERE = np.uint64(2**64 - 1)  # offset and size of a chunk that was never written


ChunksOf = Callable[[str, Any], "ChunkFiles | ChunkObjects"]
"""The files or objects of an array, by its path in the group, such as "X/data", and the zarr array."""


def open_zarr(
    paths: Path | str | Sequence[Path | str],
    *,
    output: Output = "csr",
    threads: int | None = None,
    disk: Disk | None = None,
    storage: Storage | None = None,
) -> Matrix:
    """Opens the CSR matrix X of AnnData zarr groups as a source for `BlockLoader`, the cells of one after another.

    paths: the folders of the groups, or their URLs. The other arguments: see `open_h5ad`. OSError if a file or object
    is missing, unreadable or changes while it is open. ValueError if a group is damaged, if the groups have different
    genes, or for invalid arguments. ImportError without the package zarr.
    """
    paths = several(paths)
    if storage and not all_urls(paths):
        raise ValueError("storage is for URLs, and the paths are of folders")
    with Files() as files:
        parts, n_genes = open_groups(paths, files, storage)
        files.check()
        warn_if_slow(parts)
        return Matrix(parts, n_genes, output=output, threads=threads, disk=disk, files=files)


def open_parts(groups: Sequence[Path | str], files: Files) -> list[Part]:
    """The matrices of zarr groups, in the order of `groups`. See `open_groups`."""
    return open_groups(groups, files)[0]


def open_groups(groups: Sequence[Path | str], files: Files, storage: Storage | None = None) -> tuple[list[Part], int]:
    """(the CSR matrix X of each zarr group, the number of genes). Errors: `open_zarr`."""
    import zarr

    parts, opened, widths = [], [], []
    for path in groups:
        with describing(path):
            chunks_of: ChunksOf
            if is_url(path):
                root, chunks_of = open_remote(str(path), storage or {})
            else:
                check_regular(path)
                root, chunks_of = zarr.open_group(path, mode="r"), partial(ChunkFiles.of, Path(path))
            part, n_genes = _part(str(path), root, files, chunks_of)
            genes.check_count(str(path), genes.name_column(root, "X"), n_genes)
        parts.append(part)
        widths.append(n_genes)
        opened.append((str(path), root))
    for path, width in zip(groups, widths, strict=True):
        if width != widths[0]:
            raise ValueError(f"{groups[0]} and {path} differ in their number of genes: {widths[0]:,} and {width:,}")
    if len(opened) > 1:
        genes.check_same(opened, "X")
    return parts, widths[0]


def _part(path: str, root: Any, files: Files, chunks_of: ChunksOf) -> tuple[Part, int]:
    """(the matrix X of a group, its number of genes). Reads indptr. ValueError if X is not a valid CSR matrix."""
    x, name = root["X"], f"{path}/X"
    for key in ("indptr", "data", "indices"):
        if key not in x:
            raise ValueError(f"{name} is no CSR matrix: it has no {key}")
    kind = str(x.attrs.get("encoding-type"))
    if "csr" not in kind:
        raise ValueError(f"{name} is {kind[: validate.MOST_CHARACTERS]}; rows are read from CSR")
    rows, n_genes = validate.shape(name, x.attrs.get("shape"))
    validate.matrix(name, rows, x["indptr"], x["data"], x["indices"])
    stored = x["indptr"].nbytes_stored()
    validate.held(f"{name}/indptr", x["indptr"].nbytes, stored)
    starts = validate.row_starts(f"{name}/indptr", x["indptr"][:], x["data"].shape[0])
    arrays = (_array(f"{name}/{key}", x[key], files, partial(chunks_of, f"X/{key}")) for key in ("data", "indices"))
    return Part(starts, *arrays), n_genes


def _array(name: str, array: Any, files: Files, chunks_of: Callable[[Any], "ChunkFiles | ChunkObjects"]) -> Array:
    chunk = array.chunks[0]
    if not 1 <= chunk <= MOST_ELEMENTS or (array.shards and (array.shards[0] < chunk or array.shards[0] % chunk)):
        raise ValueError(f"{name}: its chunks have {chunk} elements, its shards {array.shards}")
    chunk_files, codec = chunks_of(array), _codec(array)
    if codec is None:
        return Through(name, array, "no other codec is at hand for its compressors", chunk_files.check)
    where: Table | Callable[[int], Any] = chunk_files.read
    if array.shards:
        table = _from_shards(chunk_files, array, codec, files)
        if table is None:
            return Through(name, array, "its shards are of another form", chunk_files.check)
        where = table
    if (where.size == 0).any() if isinstance(where, Table) else (chunk_files.stamps < 0).any():
        codec, where = _with_gaps(array, codec, where, chunk_files)
    return Chunked(name, array.shape[0], chunk, codec, where)


def _with_gaps(
    array: Any, codec: registry.Codec, where: Any, chunk_files: "ChunkFiles | ChunkObjects"
) -> tuple[registry.Codec, Callable[[int], Any]]:
    """(codec, where) for `Chunked`, for an array with chunks that were never written; see `registry.irregular`."""
    whole = array.chunks[0] * codec.dtype.itemsize

    def chunk(i: int) -> np.ndarray | None:
        if isinstance(where, Table):
            return codec.decode(where.packed(i), whole) if where.size[i] else None
        if chunk_files.stamps[i, 0] < 0:
            chunk_files.check(i * array.chunks[0])
            return None
        return codec.decode(where(i), whole)

    why = "some of its chunks were never written"
    fill = 0 if array.fill_value is None else array.fill_value
    return registry.irregular(codec.dtype, array.chunks[0], fill, chunk, why)


def _codec(array: Any) -> registry.Codec | None:
    """The codec of the chunks of a zarr array; None if only zarr can decode them, for example if they have filters."""
    compressors = array.compressors
    if array.filters or len(compressors) > 1:
        return None
    if array.metadata.zarr_format == 3:  # in version 2, the dtype gives the byte order
        endian = getattr(array.serializer, "endian", None)
        if type(array.serializer).__name__ != "BytesCodec" or (array.dtype.itemsize > 1 and _text(endian) != "little"):
            return None
    kind = type(compressors[0]).__name__.lower().removesuffix("codec") if compressors else "plain"
    known = {"plain": registry.plain, "blosc": registry.blosc, "zstd": registry.zstd}
    return known[kind](array.dtype) if kind in known else None


def _text(value: Any) -> str:
    """The text of a setting of a zarr codec, which is an Enum in some versions of zarr and a str in others."""
    return str(getattr(value, "value", value))


class ChunkFiles:
    """The files of an array, one for each chunk or shard. They must not change while the array is open.

    All elements of a missing file have the fill value. stamps: for each file its size in bytes and its modification
    time in ns, or -1 and -1 if the file is missing: int64 (files, 2).
    """

    def __init__(self, folder: Path, array: Any) -> None:
        self.folder, self.encode = folder, array.metadata.encode_chunk_key
        self.elements = (array.shards or array.chunks)[0]  # the number of elements per file
        n_files = -(-array.shape[0] // self.elements)
        self.stamps = np.array([self._stamp(i) for i in range(n_files)], np.int64).reshape(-1, 2)

    @classmethod
    def of(cls, group: Path, key: str, array: Any) -> "ChunkFiles":
        return cls(group / key, array)

    def open(self, i: int, files: Files) -> int:
        return files.open(self.path(i))

    def path(self, i: int) -> Path:
        return _within(self.folder, self.encode((i,)))

    def _stamp(self, i: int) -> tuple[int, int]:
        path = self.path(i)
        if not path.is_file():
            return -1, -1
        status = path.stat()
        return status.st_size, status.st_mtime_ns

    def read(self, i: int) -> bytes:
        """The content of file i. OSError if the file has changed since the array was opened."""
        with open(open_regular(self.path(i)), "rb") as file:
            packed, stamp = file.read(), Stamp.of(file.fileno())
        self._compare(i, (stamp.size, stamp.mtime_ns))
        return packed

    def check(self, start: int) -> None:
        """OSError if the file of element `start` was changed, created or deleted since the array was opened."""
        i = start // self.elements
        self._compare(i, self._stamp(i))

    def _compare(self, i: int, stamp: tuple[int, int]) -> None:
        if stamp != tuple(self.stamps[i]):
            raise OSError(f"{self.path(i)} has changed since it was opened; open it again")


def _within(folder: Path, key: str) -> Path:
    """The path of the chunk file with this key. ValueError if the path is outside the folder of the array."""
    if key.startswith("/") or ".." in key.split("/"):
        raise ValueError(f"{folder}: its metadata name a chunk outside of its folder: {key}")
    return folder / key


def _from_shards(
    chunk_files: ChunkFiles | ChunkObjects, array: Any, codec: registry.Codec, files: Files
) -> Table | None:
    sharding = array.metadata.codecs[0]
    if [type(each).__name__ for each in sharding.index_codecs] != ["BytesCodec", "Crc32cCodec"]:
        return None
    if _text(sharding.index_codecs[0].endian) != "little":
        return None
    per_shard, chunk_bytes = array.shards[0] // array.chunks[0], array.chunks[0] * array.dtype.itemsize
    n_chunks = -(-array.shape[0] // array.chunks[0])
    fds = [chunk_files.open(i, files) if size >= 0 else -1 for i, size in enumerate(chunk_files.stamps[:, 0])]
    leads = _text(sharding.index_location) == "start"
    with ThreadPoolExecutor(CONNECTIONS) as pool:  # for shards in object storage

        def index_of(shard: int) -> np.ndarray | None:
            return None if fds[shard] < 0 else _index(chunk_files.path(shard), fds[shard], files, per_shard, leads)

        indexes = list(pool.map(index_of, range(len(fds))))
    tables = []
    for shard, whole in enumerate(indexes):
        in_use = min(per_shard, n_chunks - shard * per_shard)
        if whole is None:
            tables.append(np.zeros((2, in_use), np.int64))
            continue
        path, index = chunk_files.path(shard), whole[:in_use]
        # Offsets and sizes of 2**63 and more are invalid. As int64 they are negative, so `validate.chunks` fails.
        place, size = index.T.astype(np.int64)
        written = (index != NOWHERE).any(axis=1)
        name = str(path)
        validate.chunks(name, place[written], size[written], chunk_bytes, files.size(fds[shard]))
        validate.disjoint([(name, place[written], size[written])])
        if codec.compiled == registry.PLAIN and (size[written] != chunk_bytes).any():
            raise ValueError(f"{path}: a chunk that is not compressed is not stored in {chunk_bytes} bytes")
        tables.append(np.where(written, (place, size), 0))
    place, size = np.concatenate(tables, axis=1) if tables else np.empty((2, 0), np.int64)
    return Table(np.array(fds), per_shard, place, size, files.read)


def _index(path: Path | str, fd: int, files: Files, per_shard: int, leads: bool) -> np.ndarray:
    """The chunk index of a shard: the offset and stored size of each chunk in bytes, uint64 (per_shard, 2).

    per_shard: the number of chunks in the shard. leads: whether the index is at the start of the file; otherwise it is
    at the end. OSError if the file is too short for the index, or the checksum of the index is wrong.
    """
    from google_crc32c import value as crc32c

    n, file_bytes = 16 * per_shard, files.size(fd)
    if file_bytes < n + CHECKSUM_BYTES:
        raise OSError(f"{path} is cut short: its index of {per_shard} chunks alone has {n + CHECKSUM_BYTES:,} bytes")
    raw = files.read(fd, n + CHECKSUM_BYTES, 0 if leads else file_bytes - n - CHECKSUM_BYTES)
    if len(raw) != n + CHECKSUM_BYTES or crc32c(raw[:n]) != int.from_bytes(raw[n:], "little"):
        raise OSError(f"{path}: the checksum of its index of chunks does not hold")
    return np.frombuffer(raw[:n], "<u8").reshape(-1, 2)


def obs_column(path: Path, name: str) -> np.ndarray:
    """The values of a numeric column of the obs table in the zarr group at `path`, (cells,)."""
    import zarr

    column: Any = zarr.open_group(path, mode="r")[f"obs/{name}"]
    return column[:]
