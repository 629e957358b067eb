"""Our loader reads what anndata reads, whatever the file is like, and leaves nothing behind."""

import gc
import threading
from itertools import product
from pathlib import Path

import anndata as ad
import h5py
import numpy as np
import psutil
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness import catalogue
from harness.condition import Condition
from harness.dataset import Dataset
from loaders.native import Native
from loaders.native.h5ad import H5adStore
from tests import tiny

CONDITION = Condition(dataset="tiny", loader="native", batch_size=16, knobs=(("block_size", 4), ("fetch_factor", 3)))


def matrix(store: H5adStore, rows: np.ndarray) -> np.ndarray:
    data, indices, indptr = store.read(rows)
    return sp.csr_matrix((data, indices, indptr), shape=(len(rows), tiny.GENES)).toarray()


FILTERED = product([None, "gzip", "lzf"], [1, 7, 64, 100_000], [False, True])


@pytest.mark.parametrize(("compression", "chunk", "shuffle"), [(None, None, False), *FILTERED])
def test_storage_forms(tmp_path: Path, compression: str | None, chunk: int | None, shuffle: bool) -> None:
    folder = tiny.write(tmp_path / "set")
    for path in folder.iterdir():
        rewrite(path, chunks=None if chunk is None else (chunk,), compression=compression, shuffle=shuffle)
    store = H5adStore(catalogue.find_files(str(folder)), threads=2)
    rows = np.random.default_rng(0).permutation(tiny.N)
    np.testing.assert_array_equal(matrix(store, rows), tiny.truth()[rows])
    store.close()


@pytest.mark.parametrize(("data", "index"), [("f8", "i8"), ("i4", "i8"), ("u2", "u2"), (">f4", ">i4")])
def test_number_types(tmp_path: Path, data: str, index: str) -> None:
    folder = tiny.write(tmp_path / "set")
    for path in folder.iterdir():
        rewrite(path, types={"data": data, "indices": index}, chunks=(50,), compression="gzip")
    store = H5adStore(catalogue.find_files(str(folder)), threads=2)
    np.testing.assert_array_equal(matrix(store, np.arange(tiny.N)), tiny.truth())
    store.close()


def rewrite(path: Path, types: dict[str, str] | None = None, **options: object) -> None:
    """Stores X's arrays anew; an array shorter than its chunk keeps the chunk by being able to grow."""
    with h5py.File(path, "a") as file:
        for name in ("data", "indices"):
            values = file["X"][name][:].astype((types or {}).get(name, file["X"][name].dtype))
            del file["X"][name]
            grows = {} if options.get("chunks") is None else {"maxshape": (None,)}
            file["X"].create_dataset(name, data=values, **options, **grows)


@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(st.integers(0, tiny.N - 1), min_size=1, max_size=100, unique=True))
def test_any_rows_in_any_order(tiny_set: Dataset, rows: list[int]) -> None:
    store = H5adStore(tiny_set.paths, threads=2)
    np.testing.assert_array_equal(matrix(store, np.array(rows)), tiny.truth()[rows])
    store.close()


def test_a_chunk_that_was_never_written_is_zeros(tmp_path: Path) -> None:
    path = tmp_path / "a.h5ad"
    ad.AnnData(sp.csr_matrix(np.ones((4, 5), np.float32))).write_h5ad(path)
    with h5py.File(path, "a") as file:
        del file["X"]["data"]
        made = file["X"].create_dataset("data", (20,), "f4", chunks=(10,), compression="gzip")
        made[:10] = 1
    store = H5adStore([path], threads=1)
    assert store.read(np.arange(4)).data.sum() == 10
    store.close()


@pytest.mark.parametrize("array", ["data", "indices"])
@pytest.mark.parametrize("damage", ["flipped", "zeroed"])
def test_a_damaged_chunk_is_named(tmp_path: Path, array: str, damage: str) -> None:
    folder = tiny.write(tmp_path / "set")
    path = folder / "part3.h5ad"
    with h5py.File(path) as file:
        chunk = file["X"][array].id.get_chunk_info(0)
    with path.open("r+b") as file:
        file.seek(chunk.byte_offset + chunk.size // 2)
        old = file.read(16)
        file.seek(-16, 1)
        file.write(bytes(255 - b for b in old) if damage == "flipped" else bytes(16))
    dataset = catalogue.load(str(folder))
    loader = Native.open(dataset, Path(), CONDITION, rows=True)
    with pytest.raises(OSError, match=rf"part3.h5ad: chunk 0 of /X/{array}"):
        list(loader.epoch(0))
    loader.close()
    assert not [t for t in threading.enumerate() if t.name.startswith(("inflate", "fetch"))]


def test_closing_in_mid_epoch_and_many_epochs_leave_nothing_behind(tiny_set: Dataset) -> None:
    process = psutil.Process()

    def once(batches: int) -> None:
        loader = Native.open(tiny_set, Path(), CONDITION, rows=True)
        epoch = loader.epoch(0)
        for _ in range(batches):
            next(epoch)
        epoch.close()
        loader.close()

    once(5)
    gc.collect()
    descriptors, threads, memory = process.num_fds(), threading.active_count(), process.memory_info().rss
    for batches in range(200):
        once(batches % 20 + 1)
    gc.collect()
    assert process.num_fds() == descriptors
    assert threading.active_count() == threads
    assert process.memory_info().rss < memory + 64e6


def test_dense_files_are_declined_with_the_reason(tmp_path: Path) -> None:
    from loaders.protocol import Incompatible

    ad.AnnData(np.ones((3, 4), np.float32)).write_h5ad(tmp_path / "a.h5ad")
    with pytest.raises(Incompatible, match="X is dense"):
        Native.open(catalogue.load(str(tmp_path / "a.h5ad")), Path(), CONDITION, rows=True)
