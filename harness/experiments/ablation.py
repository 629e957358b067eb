"""An ablation of loadstone: measures the throughput with each of its parts switched off, and prints tables.

    python -m harness.experiments.ablation tahoe-mini

The files are in the page cache, so that decoding is measured and not the disk. Only the read hints are also measured
with a cold page cache, over the first 60,000 cells. Each part is measured off and on alternately, three times.

Two more tables show the cost of verifying checksums (in the first epoch and later), and the throughput of the whole
loader with libdeflate and c-blosc in place of our decoders, in the same compiled loop with the same checks. The last
table compares the decoders on chunks in memory: those of the files, and the same values compressed as annbatch does.
"""

import sys
import time
import timeit
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, NamedTuple
from unittest.mock import patch

import numcodecs
import numpy as np

import loaders
from harness.condition import Timing
from harness.data.dataset import Dataset
from harness.experiments import libraries
from harness.experiments.command import data_set
from harness.machine import pagecache
from harness.run.measure import measure, touch
from harness.run.stores import store_path
from loaders import decoding
from loadstone import BlockLoader, BlockShuffling, Matrix, Minibatch, open_h5ad
from loadstone.codecs import kernel, registry
from loadstone.reading import arrays, densify, minibatches, plan, threads
from loadstone.reading.plan import Copies
from loadstone.reading.reads import Reads

TIMING = Timing(warmup_s=3, measure_s=3)  # the warm-up is to cover the first epoch, which verifies all checksums
REPEATS = 3
LIBRARY_REPEATS = 5
SETTINGS = (16, 64), (512, 256)
SETTING = {"block_size": 16, "fetch_factor": 64, "aligned": True, "output": "csr"}

CHUNKS = 200  # chunks of each array that are decoded from memory
ZARR_CHUNK = 90_847  # elements; from annbatch's store of tahoe-mini
COLD_CELLS = 60_000  # fewer than the data set has, so that no cell is read twice


class Unpooled:
    """A replacement for `loadstone.reading.buffers.Memory` that allocates new memory for each request."""

    def empty(self, n: int, dtype: type) -> np.ndarray:
        return np.empty(n, dtype)


def _both(copies: Sequence[Copies], size: int) -> Iterator[list[Copies]]:
    """A replacement for `plan.tasks`: each task has an equal part of every array, so it reads whole rows.

    size: the number of pieces per task, at most.
    """
    n = -(-sum(len(each.of) for each in copies) // size)
    for k in range(n):
        yield [each.cut(slice(len(each.of) * k // n, len(each.of) * (k + 1) // n)) for each in copies]


def _each_alone(file: np.ndarray, place: np.ndarray, size: np.ndarray, disk: object) -> Reads:
    """A replacement for `reads.join`: every piece is a read."""
    return Reads(file, place, size, np.arange(len(file)))


class Part(NamedTuple):
    """How a part of the loader is switched off, and the setting in which it is measured.

    replaced: attributes of the `Matrix` and their replacements. patched: attributes of modules and their replacements,
    {(module, name): value}. aligned, verify: the arguments of `rate` while the part is off. cold: whether the page
    cache is emptied first. setting: the arguments of `rate` with the part on.
    """

    replaced: dict[str, Any] = {}
    patched: dict[tuple[Any, str], Any] = {}
    aligned: bool = True
    verify: str = "first"
    cold: bool = False
    setting: dict[str, Any] = SETTING


PARTS = {
    "blocks that follow the chunks": Part(aligned=False),
    "reading only the head of a chunk if its tail is not needed": Part(verify="always"),
    "a compiled loop over chunks": Part(patched={(registry, "C_FUNCTIONS"): {}}),
    "tasks of 128 chunks, not of 8": Part({"pieces_per_task": 8}),
    "indices and then values, not both in one task": Part({"divide": _both}),
    "reused buffers": Part({"memory": Unpooled()}),
    "reused buffers, blocks of 512, fetches of 16,384 cells": Part(
        {"memory": Unpooled()}, setting=SETTING | {"block_size": 512, "fetch_factor": 256}
    ),
    "dense rows put together in the cache, then copied": Part(
        patched={(densify, "PAST_CACHE"): sys.maxsize}, setting=SETTING | {"output": "dense"}
    ),
    "decoding threads at a lower priority than the consumer, dense": Part(
        patched={(threads, "NICENESS"): 0}, setting=SETTING | {"output": "dense"}
    ),
    "dense minibatches of uint16, not of float32": Part(
        patched={(minibatches, "DTYPES"): dict.fromkeys(minibatches.DTYPES, np.float32)},
        setting=SETTING | {"output": "dense_uint16"},
    ),
    "chunks joined to reads, from a cold cache": Part(patched={(plan, "join"): _each_alone}, cold=True),
    "read hints to the kernel, from a cold cache": Part(patched={(kernel, "ADVISE"): 0}, cold=True),
    "read hints to the kernel, in the page cache": Part(patched={(kernel, "ADVISE"): 0}),
}


def opened(dataset: Dataset, output: str, verify: str = "first", loader: str = "native") -> Matrix:
    """Opens the h5ad files (loader "native"), or the store of another loadstone adapter, such as "native_zarr".

    verify: see `open_h5ad`; used for "native" only.
    """
    if loader == "native":
        return open_h5ad(dataset.paths, output=output, verify=verify)
    return loaders.get(loader).source(dataset, store_path(dataset, loader), output)


def rate(
    dataset: Dataset,
    block_size: int,
    fetch_factor: int,
    aligned: bool,
    output: str,
    cold: bool = False,
    verify: str = "first",
    loader: str = "native",
    replaced: Mapping[str, Any] = {},
) -> float:
    """Cells/s in minibatches of 64, measured for TIMING.measure_s seconds after a warm-up of TIMING.warmup_s.

    cold: evict the files first, and measure the first COLD_CELLS cells without a warm-up. replaced: attributes of the
    `Matrix` and their replacements.
    """
    if cold:
        pagecache.evict(dataset.paths)
    source = opened(dataset, output, verify, loader)
    for name, value in replaced.items():
        setattr(source, name, value)
    batches = BlockLoader(source, sampler=BlockShuffling(block_size, aligned), fetch_factor=fetch_factor)
    try:
        if cold:
            return _rate_of(batches.epoch(0), COLD_CELLS)
        trace = measure(batches, TIMING, time.perf_counter, epoch_rows=dataset.n_cells)
    finally:
        batches.close()
    return trace.rows / trace.seconds


def first_epoch(dataset: Dataset, block_size: int, fetch_factor: int, verify: str) -> float:
    """Cells/s of the whole first epoch, in CSR minibatches of 64. The files must be in the page cache."""
    batches = BlockLoader(opened(dataset, "csr", verify), sampler=BlockShuffling(block_size), fetch_factor=fetch_factor)
    try:
        return _rate_of(batches.epoch(0), dataset.n_cells)
    finally:
        batches.close()


def _rate_of(batches: Iterator[Minibatch], n_cells: int) -> float:
    """Cells/s of the first `n_cells` cells in `batches`, or of all cells if there are fewer."""
    start, rows = time.perf_counter(), 0
    for batch in batches:
        rows += touch(batch)[0]
        if rows >= n_cells:
            break
    return rows / (time.perf_counter() - start)


@contextmanager
def replacing(patched: dict[tuple[Any, str], Any]) -> Iterator[None]:
    """Replaces attributes of modules, {(module, name): value}, for the duration of the context."""
    with ExitStack() as patches:
        for (module, name), value in patched.items():
            patches.enter_context(patch.object(module, name, value))
        yield


def compare(dataset: Dataset, name: str, say: Callable[[str], None]) -> None:
    """Measures the throughput with and without the part `name` of PARTS. Passes the row of the table to `say`."""
    part = PARTS[name]
    rates = []
    for _ in range(REPEATS):
        with replacing(part.patched):
            options = part.setting | {"aligned": part.aligned, "verify": part.verify, "replaced": part.replaced}
            off = rate(dataset, **options, cold=part.cold)
        rates.append((off, rate(dataset, **part.setting, cold=part.cold)))
    off, on = np.median(rates, axis=0)
    say(f"| {name} | {off:,.0f} | {on:,.0f} | {times(b / a for a, b in rates)} |")


def verification(dataset: Dataset, say: Callable[[str], None]) -> None:
    """Compares the throughput of each value of `verify` with that of "never", in the first epoch and later.

    The values are measured alternately. Passes each row of the table to `say`.
    """
    for setting in SETTINGS:
        rates = {verify: [] for verify in ("never", "first", "always")}
        for _ in range(REPEATS):
            for verify, pairs in rates.items():
                later = rate(dataset, *setting, aligned=True, output="csr", verify=verify)
                pairs.append((first_epoch(dataset, *setting, verify), later))
        for verify, pairs in rates.items():
            early, late = np.median(pairs, axis=0)
            shares = " | ".join(times(a[i] / b[i] for a, b in zip(pairs, rates["never"], strict=True)) for i in (0, 1))
            say(f"| {setting} | {verify} | {early:,.0f} | {late:,.0f} | {shares} |")


def against_libraries(dataset: Dataset, say: Callable[[str], None]) -> None:
    """Measures the whole loader with the libraries' decoders and with ours, alternately.

    Ours are measured twice, so that their ratio shows the noise (A/A). Passes each row of the table to `say`.
    """
    for loader in ("native", "native_zarr"):
        for setting in SETTINGS:
            for verify in ("first", "always") if loader == "native" else ("",):
                rates = []
                for _ in range(LIBRARY_REPEATS):
                    options = {"aligned": True, "output": "csr", "verify": verify, "loader": loader}
                    ours = rate(dataset, *setting, **options)
                    with replacing({(plan, "copy_pieces"): libraries.copy_pieces}):
                        library = rate(dataset, *setting, **options)
                    rates.append((library, ours, rate(dataset, *setting, **options)))
                library, ours, _ = np.median(rates, axis=0)
                gain, noise = times(b / a for a, b, _ in rates), times(c / b for _, b, c in rates)
                say(f"| {loader} | {setting} | {verify} | {library:,.0f} | {ours:,.0f} | {gain} | {noise} |")


def times(ratios: Iterable[float]) -> str:
    """The median and the range of the ratios as text, such as "1.15 (1.13 to 1.21)"."""
    lowest, *_, highest = ordered = sorted(ratios)
    return f"{np.median(ordered):.2f} ({lowest:.2f} to {highest:.2f})"


def chunked(array: arrays.Chunked, dtype: type) -> tuple[arrays.Chunked, list[bytes]]:
    """Converts the elements of the first CHUNKS chunks of an array to `dtype`, and compresses them as annbatch does.

    Returns (the new array, its compressed chunks). Elements at the end that do not fill a chunk are left out.
    """
    elements = np.concatenate([array.codec.decode(array.packed(i), array.whole) for i in range(CHUNKS)]).astype(dtype)
    pack = numcodecs.Blosc("lz4", 5, numcodecs.Blosc.SHUFFLE).encode
    whole = len(elements) // ZARR_CHUNK * ZARR_CHUNK
    packed = [bytes(pack(chunk)) for chunk in elements[:whole].reshape(-1, ZARR_CHUNK)]
    return arrays.Chunked("", len(elements), ZARR_CHUNK, registry.blosc(elements.dtype), array.table), packed


def decoders(dataset: Dataset, say: Callable[[str], None]) -> None:
    """Compares the decoders in microseconds per chunk, on one thread. Passes each row of the table to `say`.

    libdeflate's time includes verifying the checksum; ours does not, because our decoder leaves that to its caller.
    """
    source = open_h5ad(dataset.paths)
    data, indices = source.parts[0].data, source.parts[0].indices
    for name, array, packed in (
        ("DEFLATE, indices", indices, [indices.packed(i) for i in range(CHUNKS)]),
        ("DEFLATE, values", data, [data.packed(i) for i in range(CHUNKS)]),
        ("Blosc's LZ4, indices of 16 bits", *chunked(indices, np.uint16)),
        ("Blosc's LZ4, values", *chunked(data, np.float32)),
    ):
        both = [partial(array.codec.decode, chunk, array.whole) for chunk in packed], decoding.works(array, packed)
        seconds = [[_quickest(works) for works in both] for _ in range(REPEATS)]
        library, ours = 1e6 / len(packed) * np.median(seconds, axis=0)
        say(f"| {name} | {library:.0f} | {ours:.0f} | {times(a / b for a, b in seconds)} |")
    source.close()


def _quickest(works: Sequence[Callable[[], object]]) -> float:
    """The time in seconds to call each function once, in the fastest of five runs."""
    return min(timeit.repeat(lambda: [work() for work in works], number=1, repeat=5))


def main() -> None:
    dataset = data_set(__doc__)
    print("| part | without, cells/s | with, cells/s | times |\n| --- | ---: | ---: | ---: |")
    rate(dataset, **SETTING)  # reads the files into the page cache
    for name in sorted(PARTS, key=lambda name: PARTS[name].cold):
        compare(dataset, name, print)
    print("\n| (block, fetch) | verify | first epoch | later | first epoch / never | later / never |")
    print("| --- | --- | ---: | ---: | ---: | ---: |")
    verification(dataset, print)
    print("\n| loader | (block, fetch) | verify | libraries, cells/s | ours | times | ours / ours |")
    print("| --- | --- | --- | ---: | ---: | ---: | ---: |")
    against_libraries(dataset, print)
    print("\n| chunks of | a library, us | ours, us | times |\n| --- | ---: | ---: | ---: |")
    decoders(dataset, print)


if __name__ == "__main__":
    main()
