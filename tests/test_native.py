"""Our loader names what is damaged, leaves nothing behind, and its batches are the consumer's."""

import gc
import threading
from pathlib import Path

import h5py
import numpy as np
import psutil
import pytest

from harness import catalogue
from harness.condition import Condition
from harness.dataset import Dataset
from loaders.native.adapters import Native
from tests import tiny

CONDITION = Condition(dataset="tiny", loader="native", batch_size=16, knobs=(("block_size", 4), ("fetch_factor", 3)))


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
    before = set(threading.enumerate())
    loader = Native.open(dataset, Path(), CONDITION, rows=True)
    with pytest.raises(OSError, match=rf"part3.h5ad: /X/{array}, chunk 0"):
        list(loader.epoch(0))
    loader.close()
    assert set(threading.enumerate()) <= before


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


def test_a_dense_batch_is_the_consumers_own(tiny_set: Dataset) -> None:
    """Written to, it changes no other."""
    condition = Condition(**{**CONDITION.to_dict(), "knobs": CONDITION.knobs, "output": "dense"})
    loader = Native.open(tiny_set, Path(), condition, rows=True)
    held = [(batch.x, batch.rows.copy()) for batch in loader.epoch(0)]
    held[0][0][:] = -1
    for x, rows in held[1:]:
        np.testing.assert_array_equal(x, tiny.truth()[rows])
    loader.close()
