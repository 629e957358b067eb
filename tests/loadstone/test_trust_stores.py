"""zarr, Arrow and SCDL stores are believed no more than h5ad: each lie has an error that names the store's file."""

import json
import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import anndata as ad
import numcodecs
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import zarr as zarrs
from google_crc32c import value as crc32c
from zarr.codecs import BloscCodec, BytesCodec, GzipCodec, ZstdCodec

from loadstone.formats import arrow, scdl, zarr_group
from loadstone.reading.matrix import open_matrix
from tests.loadstone.trust import GENE, GENES, OUTPUTS, ROWS, X, read_all

SHARDED = {"chunks": (64,), "shards": (640,), "compressors": BloscCodec(cname="lz4", shuffle="shuffle")}


def store(path: Path, form: dict, index: str = "i4", var: list[str] | None = None) -> Path:
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
    """Changes a shard's index of ten chunks; sealed: with a checksum that holds."""

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
    """Changes 32 bits of the header of the first chunk in a shard."""
    return lambda raw: raw[:at] + value.to_bytes(4, "little") + raw[at + 4 :]


SHARD = {
    "entries swapped": (_index(_swap, False), "checksum of its index"),
    "a size of 0": (_index(_assign((2, 1), 0), True), "should be 0 bytes"),
    "a size of 8": (_index(_assign((2, 1), 8), True), "cannot be read"),
    "a size of 2**64 - 1": (_index(_assign((2, 1), 2**64 - 1), True), "should be -1 bytes"),
    "a size of 2**62": (_index(_assign((2, 1), 2**62), True), "bytes at offset"),
    "a place beyond the file": (_index(_assign((2, 0), 2**40), True), "the file ends"),
    "a negative place": (_index(_assign((2, 0), 2**63), True), "the file ends"),
    "two chunks in one place": (_index(_assign((2, 0), 0), True), "share bytes"),
    "cut off": (lambda raw: raw[:100], "cut short"),
    "Blosc's size": (_header(12, 2**31 - 1), "cannot be read"),
    "Blosc's block size": (_header(8, 2**31 - 1), "cannot be read"),
    "Blosc's content": (_header(4, 2**30), "cannot be read"),
}


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("lie", SHARD)
def test_shards(tmp_path: Path, lie: str, output: str) -> None:
    change, message = SHARD[lie]
    path = store(tmp_path / "a.zarr", SHARDED)
    shard = path / "X" / "data" / "c" / "0"
    shard.write_bytes(change(shard.read_bytes()))
    with pytest.raises((OSError, ValueError), match=rf"a.zarr/X/data.*{message}"):
        read_zarr(path, output)


METADATA = {
    "a shorter indptr": ("indptr", {"shape": [30]}),
    "another type": ("data", {"data_type": "uint8", "fill_value": 0}),
    "no elements a chunk": (
        "data",
        {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [0]}}},
    ),
    "no codecs": ("data", {"codecs": []}),
    "a length that is no number": ("data", {"shape": ["many"]}),
}


@pytest.mark.parametrize("form", [SHARDED, {"chunks": (64,)}], ids=["sharded", "files"])
@pytest.mark.parametrize("lie", METADATA)
def test_metadata_of_zarr(tmp_path: Path, lie: str, form: dict) -> None:
    array, change = METADATA[lie]
    path = store(tmp_path / "a.zarr", form)
    file = path / "X" / array / "zarr.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises((OSError, ValueError), match=r"a.zarr"):
        read_zarr(path)


@pytest.mark.parametrize("change", [lambda raw: raw[: len(raw) // 2], lambda raw: raw + raw, lambda raw: b""])
@pytest.mark.parametrize("compressors", [None, BloscCodec(cname="lz4")], ids=["plain", "blosc"])
def test_chunk_files_of_zarr(tmp_path: Path, compressors: object, change: Callable[[bytes], bytes]) -> None:
    path = store(tmp_path / "a.zarr", {"chunks": (64,), "compressors": compressors})
    file = path / "X" / "data" / "c" / "3"
    file.write_bytes(change(file.read_bytes()))
    with pytest.raises(OSError, match=r"a.zarr/X/data, chunk 3"):
        read_zarr(path)


@pytest.mark.parametrize("said", [63, 65, 100])
def test_chunks_of_zstandard_of_another_length(tmp_path: Path, said: int) -> None:
    """Longer and shorter than the array says: neither is padded with what was in memory."""
    path = store(tmp_path / "a.zarr", {"chunks": (64,), "compressors": ZstdCodec()})
    file = path / "X" / "data" / "c" / "3"
    file.write_bytes(numcodecs.Zstd().encode(np.ones(said, np.float32)))
    with pytest.warns(UserWarning, match=r"Zstandard"), pytest.raises(OSError, match=r"a.zarr/X/data, chunk 3"):
        read_zarr(path)


def test_big_endian_zarr_is_read_as_what_it_is(tmp_path: Path) -> None:
    path = store(tmp_path / "a.zarr", {"chunks": (64,), "serializer": BytesCodec(endian="big")})
    with pytest.warns(UserWarning, match=r"through zarr"):
        source = open_matrix(partial(zarr_group.open_parts, [path]), GENES, threads=2)
    np.testing.assert_array_equal(source[np.arange(ROWS)].toarray(), X.toarray())
    source.close()


def test_a_chunk_file_that_goes_while_zarr_itself_reads(tmp_path: Path) -> None:
    """zarr would hand out the fill value."""
    path = store(tmp_path / "a.zarr", {"chunks": (64,), "compressors": GzipCodec()})
    with pytest.warns(UserWarning, match="read through zarr"):
        source = open_matrix(partial(zarr_group.open_parts, [path]), GENES, threads=2)
    np.testing.assert_array_equal(source[np.arange(3)].toarray(), X[:3].toarray())
    (path / "X/data/c/0").unlink()
    with pytest.raises(OSError, match=r"X/data/c/0 has changed since it was opened"):
        source[np.arange(3)]
    source.close()


@pytest.mark.parametrize("name", ["zarr.json", "X/indptr/c/0", "X/data/c/2"])
def test_a_pipe_in_a_store_is_not_waited_for(tmp_path: Path, name: str) -> None:
    path = store(tmp_path / "a.zarr", {"chunks": (64,)})
    (path / name).unlink()
    os.mkfifo(path / name)
    with pytest.raises(OSError, match=rf"{name} is not a regular file"):
        read_zarr(path)


def test_groups_of_zarr_with_other_genes(tmp_path: Path) -> None:
    paths = [store(tmp_path / f"{name}.zarr", SHARDED) for name in "ab"]
    open_matrix(partial(zarr_group.open_parts, paths), GENES).close()
    store(paths[1], SHARDED, var=[f"g{i}" for i in range(GENES)][::-1])
    with pytest.raises(ValueError, match=r"gene 0 is 'g0' in the first and 'g49' in the second"):
        open_matrix(partial(zarr_group.open_parts, paths), GENES)


def lists(folder: Path, change: Callable[[pa.RecordBatch], pa.RecordBatch] = lambda batch: batch, **options) -> Path:
    """A data set of lists in one batch, each of whose columns is a view of longer ones."""
    offsets = X.indptr.astype(np.int32)
    columns = [pa.ListArray.from_arrays(offsets, pa.array(values)) for values in (X.indices, X.data)]
    batch = change(pa.record_batch(columns, names=["genes", "expressions"]))
    folder.mkdir(exist_ok=True)
    path = str(folder / "a.arrow")
    with pa.OSFile(path, "wb") as sink, pa.ipc.new_stream(sink, batch.schema, **options) as writer:
        writer.write_batch(batch)
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": "a.arrow"}]}))
    return folder


def read_arrow(folder: Path, output: str = "csr") -> list[np.ndarray]:
    return read_all(lambda: open_matrix(partial(arrow.open_parts, folder), GENES, output=output, threads=2))


OFFSETS = {
    "far on": lambda v: v + 1_000,
    "swapped": lambda v: np.concatenate([v[:20], v[[21, 20]], v[22:]]),
    "negative": lambda v: np.concatenate([[-5], v[1:]]),
}


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("lie", OFFSETS)
def test_offsets_of_arrow(tmp_path: Path, lie: str, output: str) -> None:
    folder = lists(tmp_path / "set")
    old = X.indptr.astype(np.int32)
    raw = (folder / "a.arrow").read_bytes()
    assert raw.count(old.tobytes()) == 2
    (folder / "a.arrow").write_bytes(raw.replace(old.tobytes(), OFFSETS[lie](old).astype(np.int32).tobytes()))
    with pytest.raises(ValueError, match=r"a.arrow"):
        read_arrow(folder, output)


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("gene", GENE.values())
def test_genes_of_arrow(tmp_path: Path, gene: int, output: str) -> None:
    def change(batch: pa.RecordBatch) -> pa.RecordBatch:
        genes = X.indices.copy()
        genes[100] = gene
        return batch.set_column(0, "genes", pa.ListArray.from_arrays(X.indptr.astype(np.int32), pa.array(genes)))

    with pytest.raises(ValueError, match=rf"a.arrow: genes, element 100, of row \d+, is gene {gene}"):
        read_arrow(lists(tmp_path / "set", change), output)


def test_nulls_and_compression_of_arrow(tmp_path: Path) -> None:
    def with_null(batch: pa.RecordBatch) -> pa.RecordBatch:
        values = pa.array(X.data, mask=np.arange(len(X.data)) == 7)
        return batch.set_column(1, "expressions", pa.ListArray.from_arrays(X.indptr.astype(np.int32), values))

    with pytest.raises(ValueError, match=r"a.arrow, batch 0: expressions holds nulls"):
        read_arrow(lists(tmp_path / "nulls", with_null))
    with pytest.raises(ValueError, match=r"save the data set without compression"):
        read_arrow(lists(tmp_path / "packed", options=pa.ipc.IpcWriteOptions(compression="zstd")))


@pytest.mark.parametrize("name", ["../a.arrow", "/etc/hostname", "nothing.arrow", 5])
def test_files_that_a_data_set_names(tmp_path: Path, name: object) -> None:
    folder = lists(tmp_path / "set")
    shutil.copy(folder / "a.arrow", tmp_path / "a.arrow")
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": name}]}))
    with pytest.raises((OSError, ValueError), match=r"state.json|nothing.arrow"):
        read_arrow(folder)


def read_scdl(folder: Path, output: str) -> list[np.ndarray]:
    return read_all(lambda: open_matrix(partial(scdl.open_parts, folder), GENES, output=output, threads=2))


def test_arrays_of_scdl(tmp_path: Path) -> None:
    """Cut off, longer, or with row starts or genes that lie."""
    pytest.importorskip("bionemo.scdl")
    from bionemo.scdl.io.single_cell_memmap_dataset import SingleCellMemMapDataset

    ad.AnnData(X).write_h5ad(tmp_path / "a.h5ad")
    SingleCellMemMapDataset(str(tmp_path / "whole"), str(tmp_path / "a.h5ad"), use_X_not_raw=True)

    def change(file: str, dtype: str, of: Callable[[np.ndarray], np.ndarray]) -> Path:
        folder = tmp_path / "changed"
        shutil.copytree(tmp_path / "whole", folder, dirs_exist_ok=True)
        of(np.fromfile(folder / file, dtype)).tofile(folder / file)
        return folder

    def put(at: int, value: int) -> Callable[[np.ndarray], np.ndarray]:
        return lambda v: np.where(np.arange(len(v)) == at, value, v).astype(v.dtype)

    from bionemo.scdl.schema.header import SCDLHeader

    header = SCDLHeader.load(str(tmp_path / "whole" / "header.sch"))
    types = {a.name: a.dtype.numpy_dtype_string for a in header.arrays}
    for file, dtype, of, message in (
        ("row_ptr.npy", types["ROWPTR"], lambda v: v[:30], "row_ptr.npy has .* bytes, but 61 x"),
        ("data.npy", types["DATA"], lambda v: np.append(v, v[-1:]), "data.npy has .* bytes"),
        ("col_ptr.npy", types["COLPTR"], lambda v: v[:-1], "col_ptr.npy has .* bytes"),
        ("row_ptr.npy", types["ROWPTR"], put(0, 5), "row_ptr.npy begins with 5"),
        ("row_ptr.npy", types["ROWPTR"], put(60, 2_000), "row_ptr.npy ends with 2000"),
        ("col_ptr.npy", types["COLPTR"], put(40, GENES), f"col_ptr.npy, element 40, of row \\d+, is gene {GENES}"),
    ):
        folder = change(file, dtype, of)
        for output in OUTPUTS:
            with pytest.raises(ValueError, match=message):
                read_scdl(folder, output)
