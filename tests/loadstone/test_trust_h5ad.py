"""Our loader believes nothing that a file says: each kind of lie has one error that names the file and the place."""

import os
import shutil
import zlib
from pathlib import Path

import anndata as ad
import h5py
import hdf5plugin
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from loadstone import BlockLoader, BlockShuffling, open_h5ad
from tests.loadstone.trust import GENE, GENES, OUTPUTS, ROWS, X, read_all


@pytest.fixture
def h5ad(tmp_path: Path) -> Path:
    """Gzip in chunks of 64 elements."""
    path = tmp_path / "a.h5ad"
    ad.AnnData(X, var=pd.DataFrame(index=[f"g{i}" for i in range(GENES)])).write_h5ad(path)
    with h5py.File(path, "a") as file:
        for name in ("data", "indices"):
            _store(file, name, file["X"][name][:], chunks=(64,), compression="gzip")
    return path


def _store(file: h5py.File, name: str, values: np.ndarray, **options: object) -> None:
    if name in file["X"]:
        del file["X"][name]
    file["X"].create_dataset(name, data=values, **options)


def read(path: Path, output: str = "csr") -> list[np.ndarray]:
    return read_all(lambda: open_h5ad(path, output=output, threads=2))


INDPTR = {
    "does not begin at 0": (lambda v: np.concatenate([[5], v[1:]]), "begins with 5"),
    "negative": (lambda v: np.concatenate([[-100], v[1:]]), "begins with -100"),
    "far below": (lambda v: np.concatenate([[-(10**6)], v[1:]]), "begins with"),
    "falls": (lambda v: np.concatenate([v[:20], v[[21, 20]], v[22:]]), "falls at row 20"),
    "a jump of 2**31": (lambda v: np.where(np.arange(len(v)) == 30, v + 2**31, v), "falls at row 30"),
    "beyond the data": (lambda v: np.concatenate([v[:-1], [v[-1] + 1]]), "ends with"),
    "far beyond the data": (lambda v: np.concatenate([v[:-1], [2**62]]), "ends with"),
    "shorter": (lambda v: v[:-3], "60 rows need 61"),
    "longer": (lambda v: np.concatenate([v, v[-1:]]), "60 rows need 61"),
    "fractions": (lambda v: v + 0.5, "not whole numbers"),
}


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("lie", INDPTR)
def test_row_starts_of_h5ad(h5ad: Path, lie: str, output: str) -> None:
    change, message = INDPTR[lie]
    with h5py.File(h5ad, "a") as file:
        _store(file, "indptr", change(X.indptr.astype(np.int64)))
    with pytest.raises(ValueError, match=rf"a.h5ad: /X/indptr.* {message}"):
        read(h5ad, output)


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("storage", [{"compression": "gzip", "chunks": (64,)}, {"chunks": (64,)}, {}], ids=str)
@pytest.mark.parametrize("lie", GENE)
def test_genes_of_h5ad(h5ad: Path, lie: str, storage: dict, output: str) -> None:
    values = X.indices.copy()
    values[777] = GENE[lie]
    with h5py.File(h5ad, "a") as file:
        _store(file, "indices", values, **storage)
    row = np.searchsorted(X.indptr, 777, "right") - 1
    place = ", chunk 12, element 777" if storage else ", element 777"
    with pytest.raises(ValueError, match=rf"a.h5ad: /X/indices{place}, of row {row}, is gene {GENE[lie]}"):
        read(h5ad, output)


@pytest.mark.parametrize("output", OUTPUTS)
def test_genes_beyond_32_bits(h5ad: Path, output: str) -> None:
    values = X.indices.astype(np.int64)
    values[3] += 2**32 + 1
    with h5py.File(h5ad, "a") as file:
        _store(file, "indices", values, chunks=(64,), compression="gzip")
    with pytest.raises(ValueError, match=r"/X/indices, chunk 0, element 3, of row 0, is gene 42949"):
        read(h5ad, output)


def test_data_and_indices_of_different_lengths(h5ad: Path) -> None:
    with h5py.File(h5ad, "a") as file:
        _store(file, "data", X.data[:-1], chunks=(64,))
    with pytest.raises(ValueError, match=r"/X/data has 899 elements and .*/X/indices has 900"):
        read(h5ad)


@pytest.mark.parametrize("shape", [(2**40, 2**40), (ROWS, -1), (ROWS, 2**31), (ROWS,), "six by five"])
def test_shapes(h5ad: Path, shape: object) -> None:
    with h5py.File(h5ad, "a") as file:
        file["X"].attrs["shape"] = shape
    with pytest.raises(ValueError, match=r"a.h5ad.*"):
        read(h5ad)


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
    """Neither whole nor by its head, whatever rows come first."""
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


def test_a_chunk_too_short_for_what_it_is_said_to_hold(tmp_path: Path) -> None:
    """No stream of that many bytes inflates to it, so no memory is taken for it."""
    path = tmp_path / "a.h5ad"
    ad.AnnData(sp.csr_matrix(np.ones((200, 100), np.float32))).write_h5ad(path)
    with h5py.File(path, "a") as file:
        _store(file, "data", np.ones(20_000, np.float32), chunks=(20_000,), compression="gzip")
        file["X/data"].id.write_direct_chunk((0,), b"x" * 50)
    with pytest.raises(ValueError, match=r"/X/data, chunk 0: 50 bytes cannot be inflated to 80,000"):
        read(path)


def test_without_verification_the_end_of_a_chunk_is_looked_at_alone(h5ad: Path) -> None:
    """What "never" risks: the first rows of a chunk whose end is damaged are handed out."""
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
            read(h5ad)


FILTERS = {
    "lzf": {"compression": "lzf"},
    "fletcher32": {"compression": "gzip", "fletcher32": True},
    "shuffle": {"compression": "gzip", "shuffle": True},
    "all": {"compression": "lzf", "shuffle": True, "fletcher32": True},
    "zstd": dict(hdf5plugin.Zstd()),
}


def _shorter(file: h5py.File, name: str) -> None:
    """Puts a chunk of fewer elements, with the same filters, in the place of the first."""
    dataset = file[name]
    created, size = dataset.id.get_create_plist().copy(), tuple(n - 1 for n in dataset.chunks)
    created.set_chunk(size)
    with h5py.File("beside", "w", driver="core", backing_store=False) as beside:
        made = h5py.h5d.create(beside.id, b"made", dataset.id.get_type(), h5py.h5s.create_simple(size), created)
        h5py.Dataset(made)[...] = np.zeros(size, dataset.dtype)
        mask, packed = made.read_direct_chunk((0,) * len(size))
    dataset.id.write_direct_chunk((0,) * len(size), packed, mask)


@pytest.mark.parametrize("name", ["data", "indices", "indptr"])
@pytest.mark.parametrize("filters", FILTERS)
def test_a_chunk_of_wrong_length_under_any_filter(h5ad: Path, filters: str, name: str) -> None:
    """HDF5 itself hands out what the memory behind it holds."""
    with h5py.File(h5ad, "a") as file:
        _store(file, name, file["X"][name][:], chunks=(32,), **FILTERS[filters])
        _shorter(file, f"X/{name}")
    with pytest.raises(OSError, match=rf"/X/{name}, chunk 0 .*cannot be read: it(s| holds)"):
        read(h5ad)


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
        read(path, output)


def test_chunks_of_which_some_are_not_filtered_or_not_there(tmp_path: Path) -> None:
    """A filter that makes a chunk no smaller is left out for that chunk alone; it may be one of two filters."""
    path, x = tmp_path / "a.h5ad", np.full((40, 50), 3, np.int32)
    x[:16] = np.frombuffer(np.random.default_rng(0).bytes(16 * 50 * 4), np.int32).reshape(16, 50)
    x[24:32] = 0
    ad.AnnData(x.astype(np.float32)).write_h5ad(path)
    with h5py.File(path, "a") as file:
        del file["X"]
        made = file.create_dataset("X", (40, 50), x.dtype, chunks=(4, 25), compression="lzf", shuffle=True)
        made[:24], made[32:] = x[:24], x[32:]
        masks = [made.id.get_chunk_info(i).filter_mask for i in range(made.id.get_num_chunks())]
    assert set(masks) == {0, 2}
    assert len(masks) == 16
    with pytest.warns(UserWarning, match="dense"):
        source = open_h5ad(path, output="dense")
    np.testing.assert_array_equal(source[np.arange(40)], x.astype(np.float32))
    source.close()


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.h5ad")
    with pytest.raises(OSError, match=r"a\.h5ad is not a regular file"):
        read(tmp_path / "a.h5ad")


@pytest.mark.parametrize("cut", [100, 2_000, 9_000, -1])
def test_files_cut_off(h5ad: Path, cut: int) -> None:
    raw = h5ad.read_bytes()
    h5ad.write_bytes(raw[:cut])
    with pytest.raises(OSError, match=r"a.h5ad"):
        read(h5ad)


@pytest.mark.parametrize("how", ["written to", "cut off", "longer"])
def test_files_that_change_while_they_are_read(h5ad: Path, how: str) -> None:
    source = open_h5ad(h5ad, threads=2)
    batches = iter(BlockLoader(source, sampler=BlockShuffling(4), batch_size=8, fetch_factor=2))
    next(batches)
    raw = h5ad.read_bytes()
    changed = {"written to": raw[::-1], "cut off": raw[: len(raw) // 2], "longer": raw + b"more"}[how]
    with h5ad.open("r+b") as file:
        file.truncate(0)
        file.write(changed)
    with pytest.raises(OSError, match=r"a.h5ad"):
        list(batches)
    source.close()


def test_a_file_replaced_by_another_is_read_as_it_was(h5ad: Path, tmp_path: Path) -> None:
    """An open file lives on under no name."""
    source = open_h5ad(h5ad, threads=2)
    (tmp_path / "b").write_bytes(b"other")
    (tmp_path / "b").rename(h5ad)
    np.testing.assert_array_equal(source[np.arange(ROWS)].toarray(), X.toarray())
    source.close()


def test_matrices_that_lie_in_another_file(h5ad: Path, tmp_path: Path) -> None:
    shutil.copy(h5ad, tmp_path / "other.h5ad")
    with h5py.File(h5ad, "a") as file:
        del file["X/data"]
        file["X/data"] = h5py.ExternalLink("other.h5ad", "/X/data")
    with pytest.raises(ValueError, match=r"lies in another file"):
        read(h5ad)


def _genes(path: Path, names: list[str]) -> Path:
    x = sp.csr_matrix(np.eye(3, len(names), dtype=np.float32))
    data = ad.AnnData(x)
    data.var_names = names
    data.write_h5ad(path)
    return path


def test_the_same_genes_or_an_error(tmp_path: Path) -> None:
    a = _genes(tmp_path / "a.h5ad", ["x", "y", "y", "z"])
    for names, message in (
        (["x", "y", "z", "y"], "gene 2 is 'y' in the first and 'z' in the second"),
        (["x", "y", "y", "w"], "gene 3 is 'z' in the first and 'w' in the second"),
    ):
        b = _genes(tmp_path / "b.h5ad", names)
        with pytest.raises(ValueError, match=rf"a.h5ad and .*b.h5ad differ in their genes: {message}"):
            open_h5ad([a, b])
    b = _genes(tmp_path / "b.h5ad", ["x", "y", "y", "z"])  # repeated names, as in files of 10x Genomics
    source = open_h5ad([a, b])
    assert len(source) == 6
    source.close()


def test_genes_of_raw_are_those_of_raw(tmp_path: Path) -> None:
    paths = []
    for i, names in enumerate((["p", "q"], ["q", "p"])):
        whole = ad.AnnData(sp.csr_matrix(np.eye(2, dtype=np.float32)))
        whole.var_names = names
        part = whole[:, ["p"]].copy()
        part.raw = whole
        part.write_h5ad(tmp_path / f"{i}.h5ad")
        paths.append(tmp_path / f"{i}.h5ad")
    open_h5ad(paths).close()
    with pytest.raises(ValueError, match=r"gene 0 is 'p' in the first and 'q' in the second"):
        open_h5ad(paths, matrix="raw/X")
