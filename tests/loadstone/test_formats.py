"""Our loader reads the same values as anndata, for every storage form."""

import json
import os
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import anndata as ad
import h5py
import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.data import catalogue
from loadstone import BlockLoader, BlockShuffling, Matrix, Streaming, open_h5ad
from loadstone.codecs import registry
from loadstone.formats import arrow, zarr_group
from loadstone.reading.arrays import Plain
from loadstone.reading.matrix import open_matrix
from tests import tiny
from tests.loadstone.hdf5_forms import HDF5, rewrite
from tests.loadstone.zarr_forms import ZARR, is_for_zarr_alone, write


def opened(folder: Path) -> Matrix:
    return open_h5ad(catalogue.find_files(str(folder)), threads=2)


def read_dense(matrix: Matrix, rows: np.ndarray) -> np.ndarray:
    return matrix[rows].toarray()


THROUGH_HDF5 = ("scaleoffset",)


@pytest.mark.parametrize("form", HDF5, ids=str)
def test_every_storage_form_gives_the_same_rows(tmp_path: Path, form: dict) -> None:
    folder = tiny.write(tmp_path / "set")
    for path in folder.iterdir():
        rewrite(path, **form)
    through = any(name in (form.get("compression"), *form) for name in THROUGH_HDF5)
    with pytest.warns(UserWarning, match="is read through h5py") if through else nullcontext():
        matrix = opened(folder)
    rows = np.random.default_rng(0).permutation(tiny.N)
    np.testing.assert_array_equal(read_dense(matrix, rows), tiny.truth()[rows])
    matrix.close()


@pytest.mark.parametrize(("data", "index"), [("f8", "i8"), ("i4", "i8"), ("u2", "u2"), (">f4", ">i4"), ("u1", "i4")])
def test_dtypes(tmp_path: Path, data: str, index: str) -> None:
    folder = tiny.write(tmp_path / "set")
    for path in folder.iterdir():
        rewrite(path, types={"data": data, "indices": index}, chunks=(50,), compression="gzip")
    matrix = opened(folder)
    np.testing.assert_array_equal(read_dense(matrix, np.arange(tiny.N)), tiny.truth().astype(data).astype(np.float32))
    matrix.close()


@pytest.mark.parametrize("form", ZARR, ids=str)
def test_every_form_of_zarr_gives_the_same_rows(tmp_path: Path, form: dict) -> None:
    store = write(tmp_path / "a.zarr", form)
    with pytest.warns(UserWarning, match="is read through zarr") if is_for_zarr_alone(form) else nullcontext():
        matrix = open_matrix(partial(zarr_group.open_parts, [store]), tiny.GENES, threads=2)
    rows = np.random.default_rng(0).permutation(tiny.N)
    np.testing.assert_array_equal(read_dense(matrix, rows), tiny.truth()[rows])
    matrix.close()


def test_arrow_files_batches_and_sliced_large_lists(tmp_path: Path) -> None:
    """Several files and record batches, large lists, and columns that are slices of longer arrays."""
    x = sp.csr_matrix(tiny.truth())
    lists = {
        name: pa.LargeListArray.from_arrays(x.indptr.astype(np.int64), pa.array(values))
        for name, values in (("genes", x.indices), ("expressions", x.data))
    }
    table = pa.table(lists)
    for i, (first, last) in enumerate([(0, 500), (500, 501), (501, tiny.N)]):
        part = table.slice(first, last - first)
        with pa.OSFile(str(tmp_path / f"{i}.arrow"), "wb") as sink, pa.ipc.new_stream(sink, part.schema) as writer:
            writer.write_table(part, max_chunksize=97)
    state = {"_data_files": [{"filename": f"{i}.arrow"} for i in range(3)]}
    (tmp_path / "state.json").write_text(json.dumps(state))
    matrix = open_matrix(partial(arrow.open_parts, tmp_path), tiny.GENES, threads=2)
    rows = np.random.default_rng(0).permutation(tiny.N)
    np.testing.assert_array_equal(read_dense(matrix, rows), tiny.truth()[rows])
    matrix.close()


@settings(max_examples=50)
@given(rows=st.lists(st.integers(0, tiny.N - 1), min_size=1, max_size=100))
def test_any_rows_in_any_order_and_with_repetitions(straddling: Matrix, rows: list[int]) -> None:
    np.testing.assert_array_equal(read_dense(straddling, np.array(rows)), tiny.truth()[rows])


@pytest.fixture(scope="module")
def straddling(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Matrix]:
    """The opened tiny set; its chunks of 5 elements are shorter than some rows."""
    folder = tiny.write(tmp_path_factory.mktemp("straddling") / "set")
    for path in folder.iterdir():
        rewrite(path, chunks=(5,), compression="gzip")
    matrix = opened(folder)
    yield matrix
    matrix.close()


@pytest.mark.parametrize("compiled", [True, False])
def test_compiled_and_python_inflate_give_the_same_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiled: bool
) -> None:
    """In the compiled loop, or through Python where a wheel hides the C functions that the loop calls."""
    if not compiled:
        monkeypatch.setattr(registry, "C_FUNCTIONS", {})
    folder = tiny.write(tmp_path / "set")
    for path in folder.iterdir():
        rewrite(path, chunks=(50,), compression="gzip")
    matrix = opened(folder)
    assert all((part.data.table is not None) == compiled for part in matrix.parts)
    rows = np.random.default_rng(0).permutation(tiny.N)
    np.testing.assert_array_equal(read_dense(matrix, rows), tiny.truth()[rows])
    matrix.close()


def test_the_compiled_loop_is_available() -> None:
    """Otherwise all benchmarks would measure the slower path."""
    assert all(registry.C_FUNCTIONS.values())


@settings(max_examples=60)
@given(data=st.data(), n=st.integers(1, 40), genes=st.integers(1, 200), chunk=st.integers(1, 500))
def test_any_matrix_is_read_as_anndata_reads_it(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, n: int, genes: int, chunk: int
) -> None:
    """Empty, sparse and full cells, shorter than a cache line or longer; chunks of one element up to the whole file."""
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    share = rng.choice([0, 0.2, 1], (n, 1))
    x = sp.csr_matrix(((rng.random((n, genes)) < share) * rng.random((n, genes))).astype(np.float32))
    path = tmp_path_factory.mktemp("any") / "a.h5ad"
    ad.AnnData(x).write_h5ad(path)
    rewrite(path, chunks=(chunk,), compression=data.draw(st.sampled_from([None, "gzip"])))
    rows = rng.integers(0, n, data.draw(st.integers(1, 60)))
    source = open_h5ad([path], threads=2)
    np.testing.assert_array_equal(source[rows].toarray(), ad.read_h5ad(path).X[rows].toarray())
    source.close()


def test_ten_million_genes(tmp_path: Path) -> None:
    """Cells with entries at both ends of the row. The file has no var table."""
    x = sp.csr_matrix((np.ones(4, np.float32), [0, 9_999_999, 5, 9_999_998], [0, 2, 2, 4]), (3, 10_000_000))
    with h5py.File(tmp_path / "a.h5ad", "w") as file:
        ad.io.write_elem(file, "X", x)
    source = open_h5ad([tmp_path / "a.h5ad"])
    (batch,) = BlockLoader(source, sampler=Streaming())
    assert (batch.x != x).nnz == 0
    source.close()


def test_a_plain_array_that_is_cut_short_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "values"
    np.ones(10, np.float32).tofile(path)
    fd = os.open(path, os.O_RDONLY)
    with pytest.raises(OSError, match="values is cut short: it should reach to byte 44"):
        Plain(str(path), fd, np.dtype("f4"), np.array([0, 11]), np.array([0]), file_bytes=40)
    os.close(fd)


def test_a_chunk_that_was_never_written_is_read_as_zeros(tmp_path: Path) -> None:
    path = tmp_path / "a.h5ad"
    ad.AnnData(sp.csr_matrix(np.ones((4, 5), np.float32))).write_h5ad(path)
    with h5py.File(path, "a") as file:
        del file["X"]["data"]
        dataset = file["X"].create_dataset("data", (20,), "f4", chunks=(10,), compression="gzip")
        dataset[:10] = 1
    with pytest.warns(UserWarning, match="never written"):
        matrix = open_h5ad([path], threads=1)
    assert matrix.gather(np.arange(4)).result().data.sum() == 10
    matrix.close()


DENSE = [{}, {"chunks": (10, 20)}, {"chunks": (7, 50), "shuffle": True}, {"chunks": (1, 100), "fletcher32": True}]
DENSE += [{"compression": name, "chunks": (10, 20)} for name in ("gzip", "lzf")]


@pytest.mark.parametrize("output", ["csr", "dense"])
@pytest.mark.parametrize("options", DENSE, ids=str)
def test_a_dense_matrix(tmp_path: Path, output: str, options: dict) -> None:
    """A dense matrix in several files is read, with one warning, not one for each file, that this is slow."""
    paths = [tmp_path / f"{i}.h5ad" for i in range(3)]
    for path, part in zip(paths, np.split(tiny.truth(), [400, 401]), strict=True):
        ad.AnnData(part).write_h5ad(path)
        with h5py.File(path, "a") as file:
            del file["X"]
            file.create_dataset("X", data=part.astype("f8"), **(options if len(part) > 10 else {}))
    with pytest.warns(UserWarning, match="is dense, and is .*slower than CSR") as warned:
        source = open_h5ad(paths, output=output)
    assert len(warned) == 1
    loader = BlockLoader(source, sampler=BlockShuffling(4), batch_size=16, fetch_factor=3)
    rows = []
    for batch in loader:
        assert sp.issparse(batch.x) == (output == "csr")
        assert batch.x.dtype == np.float32
        x = batch.x.toarray() if output == "csr" else batch.x
        np.testing.assert_array_equal(x, tiny.truth()[batch.rows])
        rows.extend(batch.rows)
    assert sorted(rows) == list(range(tiny.N))
    loader.close()


def test_files_of_different_or_unsupported_forms_are_refused(tmp_path: Path) -> None:
    ad.AnnData(np.ones((3, 4), np.float32)).write_h5ad(tmp_path / "dense.h5ad")
    ad.AnnData(sp.csr_matrix(np.ones((3, 4), np.float32))).write_h5ad(tmp_path / "csr.h5ad")
    ad.AnnData(sp.csc_matrix(np.ones((3, 4), np.float32))).write_h5ad(tmp_path / "csc.h5ad")
    with pytest.raises(ValueError, match="differ in form"):
        open_h5ad([tmp_path / "dense.h5ad", tmp_path / "csr.h5ad"])
    with pytest.raises(ValueError, match="csc_matrix; rows are read from CSR"):
        open_h5ad([tmp_path / "csc.h5ad"])
