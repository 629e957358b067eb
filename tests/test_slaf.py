"""What the adapter of slaf works round, or declares: each is asserted of the library itself, and of the adapter."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import anndata as ad
import numpy as np
import pytest

from harness.condition import Condition
from harness.dataset import Dataset
from loaders import slaf as adapter
from loaders.slaf import STORE, Slaf
from tests import tiny
from tests.conftest import skip_unless_available

WITH_COUNTS = sorted(set(range(tiny.N)) - {tiny.EMPTY})


@pytest.fixture(scope="module", autouse=True)
def _installed() -> None:
    skip_unless_available("slaf")
    adapter._be_silent()


@pytest.fixture(scope="module")
def store(tiny_set: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(tiny_set, tmp_path_factory.mktemp("slaf"))


def prepared(dataset: Dataset, folder: Path) -> Path:
    done = []
    Slaf.prepare(dataset, folder, done.append)
    assert done[-1] == dataset.n_cells
    return folder


def written(folder: Path, x: object, obs: object = None) -> Path:
    folder.mkdir()
    ad.AnnData(x, obs).write_h5ad(folder / "x.h5ad")
    return folder


def converted(source: Path | list[str], path: Path):
    """What the library makes of files by itself, with its defaults."""
    from slaf import SLAFArray
    from slaf.data.converter import SLAFConverter

    SLAFConverter().convert(source if isinstance(source, list) else str(source), str(path))
    return SLAFArray(str(path))


def read(array, **options: object) -> list[int]:
    """The cells that the library's own thread puts into its queue, in order, with nobody taking any out."""
    from slaf.ml.dataloaders import SLAFDataLoader

    loader = SLAFDataLoader(array, raw_mode=True, verbose=False, **options)
    prefetcher = loader._dataset.prefetcher
    prefetcher.worker_thread.join()
    found = []
    while prefetcher.has_batch():
        for table in prefetcher.get_batch().batch_dfs:
            found += table["cell_integer_id"].unique(maintain_order=True).to_list()
    return found


@pytest.fixture(scope="module")
def array(store: Path):
    from slaf import SLAFArray

    array = SLAFArray(str(store / STORE))
    array.wait_for_metadata()
    return array


@pytest.fixture
def opened(tiny_set: Dataset, store: Path) -> Iterator[Callable[..., Slaf]]:
    found = []

    def open_(seed: int = 0, **knobs: object) -> Slaf:
        condition = Condition(dataset="tiny", loader="slaf", batch_size=16, seed=seed, knobs=tuple(knobs.items()))
        found.append(Slaf.open(tiny_set, store, condition, rows=True))
        return found[-1]

    yield open_
    for loader in found:
        loader.close()


def rows(loader: Slaf, index: int = 0) -> list[int]:
    return np.concatenate([batch.rows for batch in loader.epoch(index)]).tolist()


def test_the_store_is_small_fragments_of_counts_and_nothing_else(store: Path, array) -> None:
    assert [path.name for path in store.iterdir()] == [STORE]
    cells = [set(part.to_table()["cell_integer_id"].to_pylist()) for part in array.expression.get_fragments()]
    assert len(cells) > 2 * Slaf.knobs["n_scanners"]
    assert sum(map(len, cells)) == len(set().union(*cells)) == len(WITH_COUNTS)
    assert str(array.expression.schema.field("value").type) == "uint16"


def test_fragments_are_neither_too_few_nor_too_many(tiny_set: Dataset) -> None:
    for n, cells in ((1, 1), (1_009, 22), (140_000, 1_024), (100_000_000, 10_000)):
        assert adapter._fragment_cells(replace(tiny_set, lengths=(n,))) == cells


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


def test_the_sequential_order_is_one_whatever_the_seed_and_epoch(opened: Callable[..., Slaf]) -> None:
    zero, one = opened(0, use_mixture_of_scanners=False), opened(1, use_mixture_of_scanners=False)
    assert rows(zero) == rows(zero, 1) == rows(one) != WITH_COUNTS
    assert set(Slaf.broken(zero.condition)) == {"exact", "batches", "reshuffled"}


def test_it_has_no_length_and_a_full_queue_drops_what_was_read(array) -> None:
    from slaf.ml.dataloaders import SLAFDataLoader

    loader = SLAFDataLoader(array, raw_mode=True, verbose=False)
    assert len(loader) == 0
    left = read(array, max_queue_size=1)
    assert 0 < len(left) < len(WITH_COUNTS)
    assert "max_queue_size" not in Slaf.knobs
