"""Our loader in training: samplers, subsets, labels, hooks, resumption, and torch's DataLoader."""

import json
import os
import signal
import threading
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import anndata as ad
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from harness.data.dataset import Dataset
from loadstone import (
    BlockLoader,
    BlockShuffling,
    BlockWeightedSampling,
    ClassBalancedSampling,
    Indexed,
    Streaming,
    open_h5ad,
)
from tests import tiny
from tests.conftest import program, skip_unless_available

SETTINGS = {"sampler": BlockShuffling(4), "batch_size": 16, "fetch_factor": 3}


@pytest.fixture(scope="module")
def source(tiny_set: Dataset) -> Iterator[object]:
    matrix = open_h5ad(tiny_set.paths)
    yield matrix
    matrix.close()


def ids(batches: object) -> list[list[int]]:
    """The row ids of each minibatch."""
    return [batch.rows.tolist() for batch in batches]


def test_a_minibatch_holds_cells_row_ids_and_labels(tiny_set: Dataset, source: object) -> None:
    plates = tiny_set.labels("plate")
    loader = BlockLoader(source, labels={"plate": plates}, **SETTINGS)
    for batch in loader:
        np.testing.assert_array_equal(batch.x.toarray(), tiny.truth()[batch.rows])
        np.testing.assert_array_equal(batch.labels["plate"], plates[batch.rows])
    assert len(loader) == -(-tiny.N // 16)


def test_two_fetches_are_in_memory_if_a_consumer_keeps_one_minibatch(tmp_path: Path) -> None:
    rows_of_five = np.tile(np.arange(1, 6, dtype=np.float32), 480)
    x = sp.csr_matrix((rows_of_five, np.tile(np.arange(5), 480), np.arange(0, 2_401, 5)), shape=(480, 9))
    ad.AnnData(x).write_h5ad(tmp_path / "x.h5ad")
    loader = BlockLoader(open_h5ad(tmp_path / "x.h5ad"), batch_size=3, fetch_factor=20)
    for _ in loader:  # the first epoch, whose first minibatch is a fetch of its own
        pass
    begins = [batch.x.data.ctypes.data for i, batch in enumerate(loader) if i % 20 == 0]
    assert len(begins) == 8
    assert len(set(begins)) <= 2
    loader.close()


def test_an_order_is_drawn_once_per_epoch(source: object) -> None:
    drawn = []

    class Counting(BlockShuffling):
        def order(self, blocks, rows, n_rows, fetch_rows, seed, epoch):
            drawn.append(epoch)
            return super().order(blocks, rows, n_rows, fetch_rows, seed, epoch)

    loader = BlockLoader(source, **SETTINGS | {"sampler": Counting(4)})
    for _ in range(2):
        assert len(list(loader)) == len(loader) == len(loader)
    assert drawn == [0, 1, 2]


def test_the_first_epoch_reads_its_first_batch_alone_without_changing_the_batches(
    source: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    gathered, gather = [], source.gather
    monkeypatch.setattr(source, "gather", lambda rows: gathered.append(len(rows)) or gather(rows))
    loader = BlockLoader(source, sampler=BlockShuffling(4), batch_size=8, fetch_factor=32)
    first, second = [[(batch.rows.tolist(), batch.x.toarray()) for batch in loader.epoch(0)] for _ in range(2)]
    assert gathered == [8, 248, 256, 256, tiny.N - 768, 256, 256, 256, tiny.N - 768]
    for (rows, x), (second_rows, second_x) in zip(first, second, strict=True):
        assert rows == second_rows
        np.testing.assert_array_equal(x, second_x)
        np.testing.assert_array_equal(x, tiny.truth()[rows])


def test_minibatches_come_while_the_next_fetch_is_planned(source: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planning takes tens of milliseconds where caches are cold, for which no minibatch waits."""
    loader = BlockLoader(source, sampler=BlockShuffling(4), batch_size=8, fetch_factor=32)
    expected = ids(loader.epoch(0))
    may_plan, gather = threading.Event(), source.gather
    begun: list[int] = []

    def slow(rows: np.ndarray) -> object:
        begun.append(len(rows))
        assert len(begun) == 1 or may_plan.wait(60)
        return gather(rows)

    monkeypatch.setattr(source, "gather", slow)
    epoch = loader.epoch(0)
    delivered = [next(epoch).rows.tolist() for _ in range(32)]
    may_plan.set()
    assert delivered + ids(epoch) == expected


def test_an_error_in_planning_is_raised_where_the_fetch_would_have_come(
    source: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader = BlockLoader(source, sampler=BlockShuffling(4), batch_size=8, fetch_factor=32)
    expected, gather, begun = ids(loader.epoch(0)), source.gather, []

    def failing(rows: np.ndarray) -> object:
        begun.append(len(rows))
        if len(begun) == 3:
            raise OSError("the third fetch")
        return gather(rows)

    monkeypatch.setattr(source, "gather", failing)
    epoch = loader.epoch(0)
    assert [next(epoch).rows.tolist() for _ in range(64)] == expected[:64]
    with pytest.raises(OSError, match="the third fetch"):
        next(epoch)


def test_iterating_again_is_the_next_epoch(source: object) -> None:
    loader = BlockLoader(source, **SETTINGS)
    assert [ids(loader), ids(loader)] == [ids(BlockLoader(source, **SETTINGS).epoch(i)) for i in (0, 1)]


@given(st.integers(0, 80))
def test_a_loaded_state_continues_at_the_next_batch(source: object, taken: int) -> None:
    loader = BlockLoader(source, **SETTINGS)
    list(loader)
    whole = ids(loader.epoch(1))
    running = iter(loader)
    loader.load_state_dict({"seed": 0, "epoch": 1, "delivered": 0})
    first = [next(running).rows.tolist() for _ in range(min(taken, len(whole)))]
    running.close()
    resumed = BlockLoader(source, **SETTINGS)
    resumed.load_state_dict(loader.state_dict())
    assert first + ids(resumed) == whole
    assert ids(resumed) == ids(BlockLoader(source, **SETTINGS).epoch(2))


def test_a_state_of_another_seed_is_refused(source: object) -> None:
    with pytest.raises(ValueError, match="seed 1"):
        BlockLoader(source, **SETTINGS).load_state_dict(BlockLoader(source, seed=1, **SETTINGS).state_dict())


@pytest.mark.parametrize("other", [{"fetch_factor": 2}, {"sampler": BlockShuffling(3)}])
def test_a_state_of_another_fetch_or_block_is_refused(source: object, other: dict) -> None:
    state = BlockLoader(source, **SETTINGS | other).state_dict()
    with pytest.raises(ValueError, match=r"fetch_rows|block_size"):
        BlockLoader(source, **SETTINGS).load_state_dict(state)


def test_resuming_after_a_kill(tiny_folder: Path, source: object, tmp_path: Path) -> None:
    """A process that saves its state after every batch is killed. Another loader continues from the saved state."""
    code = (
        "import json, os, sys; from pathlib import Path\n"
        "from loadstone import BlockLoader, BlockShuffling, open_h5ad\n"
        "from harness.data.catalogue import find_files\n"
        "loader = BlockLoader(open_h5ad(find_files(sys.argv[1])), sampler=BlockShuffling(4), batch_size=16,"
        " fetch_factor=3)\n"
        "for batch in loader:\n"
        "    aside = Path(sys.argv[2] + '.new')\n"
        "    aside.write_text(json.dumps([loader.state_dict(), batch.rows.tolist()]))\n"
        "    aside.rename(sys.argv[2]); print('batch', flush=True)\n"
    )
    saved = tmp_path / "state.json"
    running = program(code, tiny_folder, saved)
    for _ in range(20):
        running.stdout.readline()
    os.kill(running.pid, signal.SIGKILL)
    running.wait()
    state, last = json.loads(saved.read_text())
    whole = ids(BlockLoader(source, **SETTINGS))
    assert whole[state["delivered"] - 1] == last
    resumed = BlockLoader(source, **SETTINGS)
    resumed.load_state_dict(state)
    assert ids(resumed) == whole[state["delivered"] :]


def test_a_split_into_training_and_validation(source: object) -> None:
    validation = np.arange(0, tiny.N, 5)
    training = np.setdiff1d(np.arange(tiny.N), validation)
    for subset in (training, validation[::-1]):
        for sampler in (BlockShuffling(4), Streaming(), BlockShuffling(1), BlockShuffling(4, aligned=False)):
            batches = list(BlockLoader(source, subset=subset, **{**SETTINGS, "sampler": sampler}))
            assert sorted(row for batch in batches for row in batch.rows) == sorted(subset)
            for batch in batches:
                np.testing.assert_array_equal(batch.x.toarray(), tiny.truth()[batch.rows])


@pytest.mark.parametrize(
    ("subset", "message"), [([1, 1], "twice"), ([-1], "ids of rows"), ([tiny.N], "ids of rows"), ([], "empty")]
)
def test_an_invalid_subset_is_refused(source: object, subset: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BlockLoader(source, subset=np.array(subset), **SETTINGS)


def test_drop_last(source: object) -> None:
    sizes = [len(batch.rows) for batch in BlockLoader(source, drop_last=True, **SETTINGS)]
    assert sizes == [16] * (tiny.N // 16)


def test_weights_choose_the_cells(tiny_set: Dataset, source: object) -> None:
    weights = np.zeros(tiny.N)
    weights[[3, 700]] = 1, 3
    loader = BlockLoader(source, **{**SETTINGS, "sampler": BlockWeightedSampling(weights, 4, 4000)})
    rows = np.concatenate([batch.rows for batch in loader])
    assert len(rows) == 4000
    assert set(rows) == {3, 700}
    assert 0.6 < (rows == 700).mean() < 0.9
    plates = tiny_set.labels("plate")
    balanced = BlockLoader(source, **{**SETTINGS, "sampler": ClassBalancedSampling(plates, 4, 8000)})
    share = np.bincount(plates[np.concatenate([batch.rows for batch in balanced])]) / 8000
    assert (np.abs(share - 1 / 4) < 0.05).all()
    within = BlockLoader(
        source, subset=np.arange(401, 500), **{**SETTINGS, "sampler": ClassBalancedSampling(plates, 4, 800)}
    )
    assert set(np.concatenate([batch.rows for batch in within])) <= set(range(401, 500))
    with pytest.raises(ValueError, match="all zero"):
        next(BlockLoader(source, sampler=BlockWeightedSampling(np.zeros(tiny.N))).epoch(0))


def test_hooks_over_any_collection() -> None:
    """The hooks are called in the order and with the arguments of the paper."""
    x, called = tiny.truth(), []

    def hook(name, result):
        def call(*arguments):
            called.append(name)
            return result(*arguments)

        return call

    source = Indexed(
        x,
        fetch_callback=hook("fetch_callback", lambda collection, rows: collection[rows]),
        fetch_transform=hook("fetch_transform", lambda data: data * 2),
        batch_callback=hook("batch_callback", lambda data, places: data[places]),
        batch_transform=hook("batch_transform", lambda batch: batch + 1),
    )
    for batch in BlockLoader(source, **SETTINGS):
        np.testing.assert_array_equal(batch.x, x[batch.rows] * 2 + 1)
    source.close()
    assert called.count("fetch_callback") == called.count("fetch_transform") == -(-tiny.N // 48)
    assert called.count("batch_callback") == called.count("batch_transform") == -(-tiny.N // 16)
    assert called[0:2] == ["fetch_callback", "fetch_transform"]


def test_hooks_over_files(source: object) -> None:
    normalised = Indexed(source, fetch_transform=lambda x: x.multiply(1 / np.maximum(x.sum(1), 1)).tocsr())
    for batch in BlockLoader(normalised, **SETTINGS):
        assert np.allclose(batch.x.sum(1)[batch.rows != tiny.EMPTY], 1)


def test_an_error_in_a_hook_is_raised_to_the_caller(source: object) -> None:
    def fail(x):
        raise ArithmeticError("no")

    with pytest.raises(ArithmeticError):
        list(BlockLoader(Indexed(source, fetch_transform=fail), **SETTINGS))


def test_layers_and_raw(tmp_path: Path) -> None:
    x = sp.csr_matrix(tiny.truth())
    cells = ad.AnnData(sp.csr_matrix(x.shape, dtype=np.float32), layers={"counts": x})
    cells.raw = ad.AnnData(x * 2)
    cells.write_h5ad(tmp_path / "a.h5ad", compression="gzip")
    for matrix, times in (("layers/counts", 1), ("raw/X", 2), ("X", 0)):
        opened = open_h5ad([tmp_path / "a.h5ad"], matrix=matrix)
        assert (opened[np.arange(tiny.N)] != x * times).nnz == 0
        opened.close()


@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("dense", [False, True])
def test_torch_gets_the_same_batches_from_any_number_of_workers(
    tiny_set: Dataset, source: object, workers: int, dense: bool
) -> None:
    skip_unless_available("scdataset")  # torch
    from torch.utils.data import DataLoader

    from loadstone.torch import BlockDataset

    labels = {"plate": tiny_set.labels("plate")}
    dataset = BlockDataset(partial(open_h5ad, tiny_set.paths), dense=dense, labels=labels, **SETTINGS)
    for epoch in (0, 1):
        dataset.set_epoch(epoch)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns that sparse CSR is in beta
            batches = list(DataLoader(dataset, batch_size=None, num_workers=workers))
        expected = ids(BlockLoader(source, **SETTINGS).epoch(epoch))
        assert sorted(batch["rows"].tolist() for batch in batches) == sorted(expected)
        for batch in batches:
            x = batch["x"] if dense else batch["x"].to_dense()
            np.testing.assert_array_equal(x.numpy(), tiny.truth()[batch["rows"].numpy()])
            np.testing.assert_array_equal(batch["plate"].numpy(), labels["plate"][batch["rows"].numpy()])
    assert len(dataset) == len(expected)
    if workers != 1:
        rows = [batch["rows"].tolist() for batch in batches]
        dataset.load_state_dict(dataset.state_dict(delivered=29))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            rest = [batch["rows"].tolist() for batch in DataLoader(dataset, batch_size=None, num_workers=workers)]
        assert sorted(rows[:29] + rest) == sorted(rows)
        assert rest[0] == rows[29]


def test_files_without_cells_are_an_empty_epoch(tmp_path: Path) -> None:
    ad.AnnData(sp.csr_matrix((0, 5), dtype=np.float32)).write_h5ad(tmp_path / "none.h5ad")
    source = open_h5ad(tmp_path / "none.h5ad")
    for sampler in (BlockShuffling(4), BlockShuffling(1), Streaming()):
        loader = BlockLoader(source, sampler=sampler)
        assert (len(loader), list(loader)) == (0, [])
    assert source[[]].shape == (0, 5)
    source.close()
