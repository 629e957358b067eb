"""Malformed zarr stores: for each defect one error that names the file."""

import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import anndata as ad
import numcodecs
import numpy as np
import pandas as pd
import pytest
import zarr as zarrs
from google_crc32c import value as crc32c
from zarr.codecs import BloscCodec, BytesCodec, GzipCodec, ZstdCodec

from loadstone.formats import zarr_group
from loadstone.reading.matrix import open_matrix
from tests.loadstone.trust import GENES, OUTPUTS, ROWS, X, read_all

SHARDED = {"chunks": (64,), "shards": (640,), "compressors": BloscCodec(cname="lz4", shuffle="shuffle")}


def write_zarr(path: Path, form: dict, index: str = "i4", var: list[str] | None = None) -> Path:
    root = zarrs.open_group(path, mode="w", zarr_format=3)
    ad.io.write_elem(root, "X", X)
    ad.io.write_elem(root, "var", pd.DataFrame(index=var or [f"g{i}" for i in range(GENES)]))
    for name, values in (("data", X.data), ("indices", X.indices.astype(index))):
        del root["X"][name]
        root["X"].create_array(name, data=values, **form)
    return path


def read_zarr(path: Path, output: str = "csr") -> list[np.ndarray]:
    return read_all(lambda: open_matrix(partial(zarr_group.open_parts, [path]), GENES, output=output, threads=2))


def _index(change: Callable[[np.ndarray], None], sealed: bool) -> Callable[[bytes], bytes]:
    """A function that changes the index of a shard of ten chunks. sealed: whether it also corrects the checksum."""

    def changed(raw: bytes) -> bytes:
        table = np.frombuffer(raw[-164:-4], "<u8").reshape(10, 2).copy()
        change(table)
        index = table.tobytes()
        return raw[:-164] + index + (crc32c(index).to_bytes(4, "little") if sealed else raw[-4:])

    return changed


def _assign(place: tuple[int, int], value: int) -> Callable[[np.ndarray], None]:
    def change(table: np.ndarray) -> None:
        table[place] = value

    return change


def _swap(table: np.ndarray) -> None:
    table[[0, 1]] = table[[1, 0]]


def _header(at: int, value: int) -> Callable[[bytes], bytes]:
    """A function that overwrites 32 bits in the Blosc header of the first chunk of a shard."""
    return lambda raw: raw[:at] + value.to_bytes(4, "little") + raw[at + 4 :]


SHARD = {
    "entries swapped": (_index(_swap, False), "checksum of its index"),
    "a size of 0": (_index(_assign((2, 1), 0), True), "should be 0 bytes"),
    "a size of 8": (_index(_assign((2, 1), 8), True), "cannot be read"),
    "a size of 2**64 - 1": (_index(_assign((2, 1), 2**64 - 1), True), "should be -1 bytes"),
    "a size of 2**62": (_index(_assign((2, 1), 2**62), True), "bytes at offset"),
    "an offset beyond the file": (_index(_assign((2, 0), 2**40), True), "the file ends"),
    "a negative offset": (_index(_assign((2, 0), 2**63), True), "the file ends"),
    "two chunks at one offset": (_index(_assign((2, 0), 0), True), "share bytes"),
    "cut off": (lambda raw: raw[:100], "cut short"),
    "Blosc's size": (_header(12, 2**31 - 1), "cannot be read"),
    "Blosc's block size": (_header(8, 2**31 - 1), "cannot be read"),
    "Blosc's content": (_header(4, 2**30), "cannot be read"),
}


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("defect", SHARD)
def test_shards(tmp_path: Path, defect: str, output: str) -> None:
    change, message = SHARD[defect]
    path = write_zarr(tmp_path / "a.zarr", SHARDED)
    shard = path / "X" / "data" / "c" / "0"
    shard.write_bytes(change(shard.read_bytes()))
    with pytest.raises((OSError, ValueError), match=rf"a.zarr/X/data.*{message}"):
        read_zarr(path, output)


METADATA = {
    "a shorter indptr": ("indptr", {"shape": [30]}),
    "another type": ("data", {"data_type": "uint8", "fill_value": 0}),
    "chunks of 0 elements": (
        "data",
        {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [0]}}},
    ),
    "no codecs": ("data", {"codecs": []}),
    "a length that is not a number": ("data", {"shape": ["many"]}),
}


@pytest.mark.parametrize("form", [SHARDED, {"chunks": (64,)}], ids=["sharded", "files"])
@pytest.mark.parametrize("defect", METADATA)
def test_metadata_of_zarr(tmp_path: Path, defect: str, form: dict) -> None:
    array, change = METADATA[defect]
    path = write_zarr(tmp_path / "a.zarr", form)
    file = path / "X" / array / "zarr.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises((OSError, ValueError), match=r"a.zarr"):
        read_zarr(path)


@pytest.mark.parametrize("change", [lambda raw: raw[: len(raw) // 2], lambda raw: raw + raw, lambda raw: b""])
@pytest.mark.parametrize("compressors", [None, BloscCodec(cname="lz4")], ids=["plain", "blosc"])
def test_chunk_files_of_zarr(tmp_path: Path, compressors: object, change: Callable[[bytes], bytes]) -> None:
    path = write_zarr(tmp_path / "a.zarr", {"chunks": (64,), "compressors": compressors})
    file = path / "X" / "data" / "c" / "3"
    file.write_bytes(change(file.read_bytes()))
    with pytest.raises(OSError, match=r"a.zarr/X/data, chunk 3"):
        read_zarr(path)


@pytest.mark.parametrize("n", [63, 65, 100])
def test_zstandard_chunks_of_a_wrong_length(tmp_path: Path, n: int) -> None:
    """Shorter or longer than the 64 elements of the array metadata. They are not padded with memory contents."""
    path = write_zarr(tmp_path / "a.zarr", {"chunks": (64,), "compressors": ZstdCodec()})
    file = path / "X" / "data" / "c" / "3"
    file.write_bytes(numcodecs.Zstd().encode(np.ones(n, np.float32)))
    with pytest.warns(UserWarning, match=r"Zstandard"), pytest.raises(OSError, match=r"a.zarr/X/data, chunk 3"):
        read_zarr(path)


def test_big_endian_zarr_is_read_correctly(tmp_path: Path) -> None:
    path = write_zarr(tmp_path / "a.zarr", {"chunks": (64,), "serializer": BytesCodec(endian="big")})
    with pytest.warns(UserWarning, match=r"through zarr"):
        source = open_matrix(partial(zarr_group.open_parts, [path]), GENES, threads=2)
    np.testing.assert_array_equal(source[np.arange(ROWS)].toarray(), X.toarray())
    source.close()


def test_a_chunk_file_that_is_removed_while_the_zarr_library_reads(tmp_path: Path) -> None:
    """zarr would deliver the fill value."""
    path = write_zarr(tmp_path / "a.zarr", {"chunks": (64,), "compressors": GzipCodec()})
    with pytest.warns(UserWarning, match="read through zarr"):
        source = open_matrix(partial(zarr_group.open_parts, [path]), GENES, threads=2)
    np.testing.assert_array_equal(source[np.arange(3)].toarray(), X[:3].toarray())
    (path / "X/data/c/0").unlink()
    with pytest.raises(OSError, match=r"X/data/c/0 has changed since it was opened"):
        source[np.arange(3)]
    source.close()


def test_rows_are_not_empty_because_a_chunk_of_indptr_is_lost(tmp_path: Path) -> None:
    """zarr takes the fill value for a chunk without a file, so that no row would have a count."""
    path = write_zarr(tmp_path / "a.zarr", {"chunks": (64,)})
    (path / "X/indptr/c/0").unlink()
    with pytest.raises(ValueError, match=r"X/indptr ends with 0, so that the last of .* elements belong to no row"):
        read_zarr(path)


@pytest.mark.parametrize("name", ["zarr.json", "X/indptr/c/0", "X/data/c/2"])
def test_a_pipe_in_a_zarr_store_is_refused_and_does_not_block(tmp_path: Path, name: str) -> None:
    path = write_zarr(tmp_path / "a.zarr", {"chunks": (64,)})
    (path / name).unlink()
    os.mkfifo(path / name)
    with pytest.raises(OSError, match=rf"{name} is not a regular file"):
        read_zarr(path)


def test_zarr_groups_must_have_the_same_genes(tmp_path: Path) -> None:
    paths = [write_zarr(tmp_path / f"{name}.zarr", SHARDED) for name in "ab"]
    open_matrix(partial(zarr_group.open_parts, paths), GENES).close()
    write_zarr(paths[1], SHARDED, var=[f"g{i}" for i in range(GENES)][::-1])
    with pytest.raises(ValueError, match=r"gene 0 is 'g0' in the first and 'g49' in the second"):
        open_matrix(partial(zarr_group.open_parts, paths), GENES)
