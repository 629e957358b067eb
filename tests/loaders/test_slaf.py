"""Behaviour of slaf that the adapter works around or declares, asserted for the library itself and for the adapter."""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import anndata as ad
import numpy as np
import pytest
import scipy.sparse as sp

from harness.condition import Condition
from harness.data import catalogue
from harness.data.dataset import Dataset
from loaders import slaf as adapter
from loaders.slaf import STORE, Slaf
from tests import tiny
from tests.conftest import skip_unless_available

WITH_COUNTS = sorted(set(range(tiny.N)) - {tiny.EMPTY})


@pytest.fixture(scope="module", autouse=True)
def _installed() -> None:
    skip_unless_available("slaf")
    with Slaf.importing():
        import slaf  # noqa: F401


@pytest.fixture(scope="module")
def store(tiny_set: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(tiny_set, tmp_path_factory.mktemp("slaf"))


def prepared(dataset: Dataset, folder: Path) -> Path:
    progress = []
    Slaf.prepare(dataset, folder, progress.append)
    assert progress[-1] == dataset.n_cells
    return folder


def written(folder: Path, x: object, obs: object = None) -> Path:
    folder.mkdir()
    ad.AnnData(x, obs).write_h5ad(folder / "x.h5ad")
    return folder


def converted(source: Path | list[str], path: Path):
    """Converts the files with the library itself and its default options. Returns the opened SLAFArray."""
    from slaf import SLAFArray
    from slaf.data.converter import SLAFConverter

    SLAFConverter().convert(source if isinstance(source, list) else str(source), str(path))
    return SLAFArray(str(path))


def read(array, **options: object) -> list[int]:
    """The ids of the cells in the order in which the library's thread queues them. Waits until the thread has ended."""
    from slaf.ml.dataloaders import SLAFDataLoader

    loader = SLAFDataLoader(array, raw_mode=True, verbose=False, **options)
    prefetcher = loader._dataset.prefetcher
    prefetcher.worker_thread.join()
    cells = []
    while prefetcher.has_batch():
        for table in prefetcher.get_batch().batch_dfs:
            cells += table["cell_integer_id"].unique(maintain_order=True).to_list()
    return cells


@pytest.fixture(scope="module")
def array(store: Path):
    from slaf import SLAFArray

    array = SLAFArray(str(store / STORE))
    array.wait_for_metadata()
    return array


@pytest.fixture
def opened(tiny_set: Dataset, store: Path) -> Iterator[Callable[..., Slaf]]:
    opened_loaders = []

    def open_(seed: int = 0, **knobs: object) -> Slaf:
        condition = Condition(dataset="tiny", loader="slaf", batch_size=16, seed=seed, knobs=tuple(knobs.items()))
        opened_loaders.append(Slaf.open(tiny_set, store, condition, rows=True))
        return opened_loaders[-1]

    yield open_
    for loader in opened_loaders:
        loader.close()


def rows(loader: Slaf, index: int = 0) -> list[int]:
    return np.concatenate([batch.rows for batch in loader.epoch(index)]).tolist()


def test_the_store_contains_only_small_fragments_of_counts(store: Path, array) -> None:
    assert [path.name for path in store.iterdir()] == [STORE]
    cells = [set(part.to_table()["cell_integer_id"].to_pylist()) for part in array.expression.get_fragments()]
    assert len(cells) >= Slaf.knobs["n_scanners"]
    assert sum(map(len, cells)) == len(set().union(*cells)) == len(WITH_COUNTS)
    assert str(array.expression.schema.field("value").type) == "uint16"


def test_fragments_are_neither_too_few_nor_too_many(tiny_set: Dataset) -> None:
    for n, cells in ((1, 1), (1_009, 64), (140_000, 5_000), (100_000_000, 10_000)):
        assert adapter.fragment_cells(replace(tiny_set, lengths=(n,))) == cells


def test_an_epoch_has_every_cell_but_the_empty_one(opened: Callable[..., Slaf], array) -> None:
    assert sorted(rows(opened(n_scanners=3))) == WITH_COUNTS
    assert sorted(rows(opened(use_mixture_of_scanners=False))) == WITH_COUNTS
    assert sorted(read(array)) == WITH_COUNTS


def test_the_mixture_is_seeded_by_numpys_global_state_alone(array) -> None:
    state, orders = np.random.get_state(), []
    try:
        for seed in (0, 0, 1):
            np.random.seed(seed)
            orders.append(read(array, n_scanners=3))
    finally:
        np.random.set_state(state)
    assert orders[0] == orders[1] != orders[2]


def test_the_sequential_order_does_not_depend_on_seed_and_epoch(opened: Callable[..., Slaf]) -> None:
    zero, one = opened(0, use_mixture_of_scanners=False), opened(1, use_mixture_of_scanners=False)
    assert rows(zero) == rows(zero, 1) == rows(one) != WITH_COUNTS
    assert set(Slaf.broken(zero.condition)) == {"exact", "batches", "reshuffled"}


def test_the_library_has_no_length_and_drops_cells_when_its_queue_is_full(array) -> None:
    from slaf.ml.dataloaders import SLAFDataLoader

    loader = SLAFDataLoader(array, raw_mode=True, verbose=False)
    assert len(loader) == 0
    cells = read(array, max_queue_size=1, n_scanners=3)
    assert 0 < len(cells) < len(WITH_COUNTS)
    assert "max_queue_size" not in Slaf.knobs


def test_the_library_restarts_cell_starts_with_each_file_of_a_list(tiny_set: Dataset, tmp_path: Path) -> None:
    array = converted([str(path) for path in tiny_set.paths], tmp_path / "list.slaf")
    starts = array.obs["cell_start_index"].to_numpy()
    assert (np.diff(starts) < 0).any()  # they restart with each file


def test_the_library_trusts_a_column_n_genes(tmp_path: Path) -> None:
    x = sp.csr_matrix(tiny.truth()[:20])
    obs = tiny.obs()[:20].assign(n_genes=7)
    array = converted(written(tmp_path / "set", x, obs) / "x.h5ad", tmp_path / "x.slaf")
    assert array.obs["cell_start_index"].to_list() == [7 * i for i in range(20)] != x.indptr[:-1].tolist()


@pytest.mark.parametrize("last", [0.5, 65_536, -1])
def test_values_are_preserved_whatever_the_first_values_are(tmp_path: Path, last: float) -> None:
    x = sp.csr_matrix(np.ones((101, 100), np.float32))
    x.data[-1] = last
    folder = written(tmp_path / "set", x)
    alone = converted(folder / "x.h5ad", tmp_path / "alone.slaf").expression.to_table()["value"].to_numpy()
    assert alone[-1] != np.float32(last)
    dataset = catalogue.load(str(folder))
    (tmp_path / "store").mkdir()
    loader = Slaf.open(
        dataset, prepared(dataset, tmp_path / "store"), Condition(dataset="x", loader="slaf", batch_size=16), rows=True
    )
    assert all(np.array_equal(x[b.rows].toarray(), b.x.toarray()) for b in loader.epoch(0))


def test_more_genes_than_16_bits_can_number_are_refused(tiny_set: Dataset, tmp_path: Path) -> None:
    with pytest.raises(adapter.Incompatible):
        Slaf.prepare(replace(tiny_set, n_genes=65_537), tmp_path, lambda _: None)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> tuple[Dataset, Path]:
    """(data set, store) with so many cells that the library's thread is still reading when the first batch arrives."""
    x = sp.csr_matrix(np.ones((60_000, 1), np.float32))
    dataset = catalogue.load(str(written(tmp_path_factory.mktemp("many") / "set", x)))
    return dataset, prepared(dataset, tmp_path_factory.mktemp("many-slaf"))


def reading() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if "_prefetch_worker" in thread.name]


@pytest.mark.parametrize("closed", [True, False], ids=["closed", "dropped"])
def test_the_reading_thread_is_stopped_in_mid_epoch(many: tuple[Dataset, Path], closed: bool) -> None:
    condition = Condition(dataset="many", loader="slaf", knobs=(("n_scanners", 1),))
    loader = Slaf.open(*many, condition, rows=True)
    epoch = loader.epoch(0)
    next(epoch)
    assert len(reading()) == 1
    if closed:
        loader.close()
    else:
        del epoch
    assert reading() == []


@pytest.mark.slow
def test_an_epoch_of_the_library_ends_80_s_after_its_last_batch(array) -> None:
    """A lower bound: a slow machine cannot make it fail."""
    from slaf.ml.dataloaders import SLAFDataLoader

    for _ in SLAFDataLoader(array, raw_mode=True, verbose=False):
        last = time.monotonic()
    assert time.monotonic() - last >= 79
