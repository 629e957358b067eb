"""`native` names damaged chunks, releases its resources, and leaves its batches to the consumer."""

import gc
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import psutil
import pytest

from harness.condition import Condition
from harness.data import catalogue
from harness.data.dataset import Dataset
from harness.machine import host
from loaders.native import Native
from loadstone import BlockLoader, Streaming, open_h5ad
from loadstone.reading.buffers import KEPT, Memory
from tests import tiny

CONDITION = Condition(dataset="tiny", loader="native", batch_size=16, knobs=(("block_size", 4), ("fetch_factor", 3)))


@pytest.mark.parametrize("array", ["data", "indices"])
@pytest.mark.parametrize("damage", ["flipped", "zeroed"])
def test_a_damaged_chunk_is_named(tmp_path: Path, array: str, damage: str) -> None:
    folder = tiny.write(tmp_path / "set")
    _damage(folder / "part3.h5ad", array, damage)
    dataset = catalogue.load(str(folder))
    before = set(threading.enumerate())
    loader = Native.open(dataset, Path(), CONDITION, rows=True)
    with pytest.raises(OSError, match=rf"part3.h5ad: /X/{array}, chunk 0"):
        list(loader.epoch(0))
    loader.close()
    assert set(threading.enumerate()) <= before


def _damage(path: Path, array: str, damage: str) -> None:
    """Overwrites 16 bytes in the middle of the array's first chunk."""
    with h5py.File(path) as file:
        chunk = file["X"][array].id.get_chunk_info(0)
    with path.open("r+b") as file:
        file.seek(chunk.byte_offset + chunk.size // 2)
        old = file.read(16)
        file.seek(-16, 1)
        file.write(bytes(255 - b for b in old) if damage == "flipped" else bytes(16))


def test_the_first_batch_does_not_wait_for_the_rest_of_its_fetch(tmp_path: Path) -> None:
    folder = tiny.write(tmp_path / "set")
    _damage(folder / "part3.h5ad", "data", "flipped")
    matrix = open_h5ad(catalogue.load(str(folder)).paths)
    batches = iter(BlockLoader(matrix, sampler=Streaming(), batch_size=16, fetch_factor=64))  # one fetch, of all cells
    first = next(batches)
    np.testing.assert_array_equal(first.rows, np.arange(16))
    np.testing.assert_array_equal(first.x.toarray(), tiny.truth()[:16])
    with pytest.raises(OSError, match="data, chunk 0"):
        next(batches)
    matrix.close()


@pytest.mark.slow
def test_a_first_minibatch_compiles_nothing_after_loadstone_compile(tiny_set: Dataset, tmp_path: Path) -> None:
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-m", "loadstone.compile"], env=environment, cwd=host.ROOT, check=True)
    compiled = {path for path in tmp_path.rglob("*") if path.is_file()}
    files = [str(path) for path in tiny_set.paths]
    for output in ("csr", "dense"):
        code = f"from loadstone import *; next(iter(BlockLoader(open_h5ad({files}, output='{output}'))))"
        subprocess.run([sys.executable, "-c", code], env=environment, cwd=host.ROOT, check=True)
    assert compiled
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == compiled


def test_closing_in_mid_epoch_leaks_no_descriptors_threads_or_memory(tiny_set: Dataset) -> None:
    process = psutil.Process()

    def decoding_threads() -> int:  # not all threads, as those of other tests may end meanwhile
        return sum(thread.name.startswith("decode") for thread in threading.enumerate())

    def read_and_close(batches: int) -> None:
        loader = Native.open(tiny_set, Path(), CONDITION, rows=True)
        epoch = loader.epoch(0)
        for _ in range(batches):
            next(epoch)
        epoch.close()
        loader.close()

    read_and_close(5)
    gc.collect()
    descriptors, threads, memory = process.num_fds(), decoding_threads(), process.memory_info().rss
    for batches in range(200):
        read_and_close(batches % 20 + 1)
    gc.collect()
    assert process.num_fds() == descriptors
    assert decoding_threads() == threads
    assert process.memory_info().rss < memory + 64e6


@pytest.mark.parametrize("output", ["csr", "dense"])
def test_a_batch_belongs_to_the_consumer(tiny_set: Dataset, output: str) -> None:
    """Writing to a batch changes no other; a batch or slice that is kept has the same values after later epochs."""
    condition = replace(CONDITION, output=output)
    loader = Native.open(tiny_set, Path(), condition, rows=True)
    batches = [batch for index in range(2) for batch in loader.epoch(index)]
    kept = [(batch.x if output == "dense" else batch.x.toarray(), batch.rows.copy()) for batch in batches]
    slices = [(batch.x.data[3:9], batch.x.data[3:9].copy()) for batch in batches[::10]] if output == "csr" else []
    written = batches[0].x if output == "dense" else batches[0].x.data
    written[:] = -1
    del batches, written
    for _ in loader.epoch(2):
        pass
    for x, rows in kept[1:]:
        np.testing.assert_array_equal(x, tiny.truth()[rows])
    for part, copied in slices[1:]:
        np.testing.assert_array_equal(part, copied)
    loader.close()


@pytest.mark.skipif(sys.platform != "linux", reason="only on Linux does a thread have its own priority")
def test_threads_that_decode_have_a_lower_priority_than_the_consumer(tiny_set: Dataset) -> None:
    before = os.getpriority(os.PRIO_PROCESS, 0)
    loader = Native.open(tiny_set, Path(), CONDITION, rows=True)
    next(loader.epoch(0))
    decoding = [thread.native_id for thread in threading.enumerate() if thread.name.startswith("decode")]
    assert decoding
    assert all(os.getpriority(os.PRIO_PROCESS, thread) > before for thread in decoding)
    assert os.getpriority(os.PRIO_PROCESS, 0) == before
    loader.close()


def test_buffers_are_reused() -> None:
    """A buffer is reused once no array or slice refers to it, and only for arrays that fit into it."""
    memory = Memory()
    first = memory.empty(100, np.float32)
    address, part = first.ctypes.data, first[50:60]
    del first
    other = memory.empty(100, np.int32)
    assert other.ctypes.data != address
    del part
    again = memory.empty(90, np.int32)
    assert again.ctypes.data == address
    del again
    assert len(memory.empty(10_000, np.int32)) == 10_000
    many = [memory.empty(10, np.int32) for _ in range(100)]
    assert len({array.ctypes.data for array in many}) == 100
    assert len(memory.kept) <= KEPT


def test_threads_share_no_buffer() -> None:
    """A fetch is planned in a thread of its own, while others may read rows of the same source."""
    memory = Memory()

    def write(value: int) -> bool:
        kept = []
        for _ in range(200):
            kept = [*kept, memory.empty(1_000, np.int32)][-2:]
            kept[-1][:] = value
            time.sleep(0)
            if any((array != value).any() for array in kept):
                return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(write, range(4)))


@pytest.mark.parametrize("tokens", ["geneformer", "scgpt"])
def test_the_printed_code_makes_the_tokens_of_the_condition(tiny_set: Dataset, tokens: str) -> None:
    condition = Condition(dataset="tiny", loader="native", output="tokens", tokens=tokens)
    counted: list[int] = []
    program = Native.code(tiny_set, Path(), condition).replace("range(10)", "range(1)")
    exec(f"{program}        counted.append(batch.x.mask.sum())\n", {"counted": counted})
    assert sum(counted) == tiny_set.nnz + 2 * tiny_set.n_cells
