"""Damaged chunks in h5ad files, under any filter: no wrong value reaches a minibatch, and the error names the chunk."""

import zlib
from pathlib import Path

import anndata as ad
import h5py
import hdf5plugin
import numpy as np
import pytest
import scipy.sparse as sp

from loadstone import open_h5ad
from tests.loadstone.trust import OUTPUTS, ROWS, X, read_h5ad, store_h5ad

CHUNK = {
    "shorter": lambda raw: raw[: len(raw) // 2],
    "empty": lambda raw: b"\0",
    "of zeros": lambda raw: bytes(len(raw)),
    "flipped": lambda raw: raw[:40] + bytes(255 - b for b in raw[40:44]) + raw[44:],
    "with a wrong checksum": lambda raw: raw[:-1] + bytes([raw[-1] ^ 1]),
}


@pytest.mark.parametrize("verify", ["first", "always"])
@pytest.mark.parametrize("damage", CHUNK)
def test_a_damaged_chunk_reaches_no_minibatch(h5ad: Path, damage: str, verify: str) -> None:
    """Neither the whole chunk nor its beginning, whichever rows are read first."""
    with h5py.File(h5ad, "a") as file:
        dataset = file["X/data"].id
        mask, raw = dataset.read_direct_chunk((5 * 64,))
        dataset.write_direct_chunk((5 * 64,), CHUNK[damage](raw), mask)
    touched = np.flatnonzero((X.indptr[:-1] < 6 * 64) & (X.indptr[1:] > 5 * 64))
    source = open_h5ad(h5ad, threads=2, verify=verify)
    for row in range(ROWS):
        if row in touched:
            with pytest.raises(OSError, match=r"/X/data, chunk 5 .* cannot be read"):
                source[[row]]
        else:
            np.testing.assert_array_equal(source[[row]].toarray(), X[[row]].toarray())
    source.close()


def test_a_chunk_too_short_for_its_stated_length(tmp_path: Path) -> None:
    """No stream of 50 bytes inflates to 80,000, so no memory is allocated for the result."""
    path = tmp_path / "a.h5ad"
    ad.AnnData(sp.csr_matrix(np.ones((200, 100), np.float32))).write_h5ad(path)
    with h5py.File(path, "a") as file:
        store_h5ad(file, "data", np.ones(20_000, np.float32), chunks=(20_000,), compression="gzip")
        file["X/data"].id.write_direct_chunk((0,), b"x" * 50)
    with pytest.raises(ValueError, match=r"/X/data, chunk 0: 50 bytes cannot be inflated to 80,000"):
        read_h5ad(path)


def test_without_verification_damage_is_found_only_when_the_end_of_a_chunk_is_read(h5ad: Path) -> None:
    """The risk of "never": the first rows of a chunk are delivered although its end is damaged."""
    with h5py.File(h5ad, "a") as file:
        dataset = file["X/data"].id
        mask, raw = dataset.read_direct_chunk((5 * 64,))
        dataset.write_direct_chunk((5 * 64,), CHUNK["with a wrong checksum"](raw), mask)
    row = int(np.searchsorted(X.indptr, 5 * 64, "right")) - 1
    source = open_h5ad(h5ad, threads=2, verify="never")
    np.testing.assert_array_equal(source[[row]].toarray(), X[[row]].toarray())
    with pytest.raises(OSError, match=r"/X/data, chunk 5"):
        source[np.arange(ROWS)]
    source.close()


def test_a_chunk_of_wrong_length(h5ad: Path) -> None:
    for n in (63, 65):
        with h5py.File(h5ad, "a") as file:
            file["X/data"].id.write_direct_chunk((0,), zlib.compress(np.ones(n, np.float32).tobytes()))
        with pytest.raises(OSError, match=r"/X/data, chunk 0"):
            read_h5ad(h5ad)


FILTERS = {
    "lzf": {"compression": "lzf"},
    "fletcher32": {"compression": "gzip", "fletcher32": True},
    "shuffle": {"compression": "gzip", "shuffle": True},
    "all": {"compression": "lzf", "shuffle": True, "fletcher32": True},
    "zstd": dict(hdf5plugin.Zstd()),
}


def _shorter(file: h5py.File, name: str) -> None:
    """Replaces the first chunk of a dataset by a valid chunk, one element shorter, with the same filters."""
    dataset = file[name]
    created, size = dataset.id.get_create_plist().copy(), tuple(n - 1 for n in dataset.chunks)
    created.set_chunk(size)
    with h5py.File("beside", "w", driver="core", backing_store=False) as beside:
        short = h5py.h5d.create(beside.id, b"short", dataset.id.get_type(), h5py.h5s.create_simple(size), created)
        h5py.Dataset(short)[...] = np.zeros(size, dataset.dtype)
        mask, packed = short.read_direct_chunk((0,) * len(size))
    dataset.id.write_direct_chunk((0,) * len(size), packed, mask)


@pytest.mark.parametrize("name", ["data", "indices", "indptr"])
@pytest.mark.parametrize("filters", FILTERS)
def test_a_chunk_of_wrong_length_under_any_filter(h5ad: Path, filters: str, name: str) -> None:
    """HDF5 itself would deliver the memory behind the decoded bytes."""
    with h5py.File(h5ad, "a") as file:
        store_h5ad(file, name, file["X"][name][:], chunks=(32,), **FILTERS[filters])
        _shorter(file, f"X/{name}")
    with pytest.raises(OSError, match=rf"/X/{name}, chunk 0 .*cannot be read: it(s| holds)"):
        read_h5ad(h5ad)


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("filters", FILTERS)
def test_a_chunk_of_wrong_length_of_a_dense_matrix(tmp_path: Path, filters: str, output: str) -> None:
    path = tmp_path / "a.h5ad"
    ad.AnnData(X.toarray()).write_h5ad(path)
    with h5py.File(path, "a") as file:
        del file["X"]
        file.create_dataset("X", data=X.toarray(), chunks=(16, 20), **FILTERS[filters])
        _shorter(file, "X")
    with pytest.raises(OSError, match=r"/X, chunk 0 \(rows 0 to 16, genes 0 to 20\), cannot be read: it(s| holds)"):
        read_h5ad(path, output)


def test_chunks_without_a_filter_and_missing_chunks(tmp_path: Path) -> None:
    """HDF5 omits a filter for the chunks that it does not make smaller; here it is one of two filters."""
    path, x = tmp_path / "a.h5ad", np.full((40, 50), 3, np.int32)
    x[:16] = np.frombuffer(np.random.default_rng(0).bytes(16 * 50 * 4), np.int32).reshape(16, 50)
    x[24:32] = 0
    ad.AnnData(x.astype(np.float32)).write_h5ad(path)
    with h5py.File(path, "a") as file:
        del file["X"]
        dataset = file.create_dataset("X", (40, 50), x.dtype, chunks=(4, 25), compression="lzf", shuffle=True)
        dataset[:24], dataset[32:] = x[:24], x[32:]
        masks = [dataset.id.get_chunk_info(i).filter_mask for i in range(dataset.id.get_num_chunks())]
    assert set(masks) == {0, 2}
    assert len(masks) == 16
    with pytest.warns(UserWarning, match="dense"):
        source = open_h5ad(path, output="dense")
    np.testing.assert_array_equal(source[np.arange(40)], x.astype(np.float32))
    source.close()
