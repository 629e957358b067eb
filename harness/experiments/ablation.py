"""Ablation of our loader: what each part of it is worth, when it alone is switched off.

    python -m harness.experiments.ablation tahoe-mini

Files are in the page cache, so this is about decoding and not about the disk; what concerns the disk is measured from a
cold cache, up to 60,000 cells. Each part is measured off and on in turn, three times.

Then the cost of verifying checksums, in the first epoch and later. Then our decoders against the libraries': in the
whole loader, with the same compiled loop and the same checks; and for chunks in memory, those of the files, and the
same values compressed as annbatch does.
"""

import sys
import time
import timeit
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, NamedTuple
from unittest.mock import patch

import numba
import numcodecs
import numpy as np

import loaders
from harness.condition import Timing
from harness.data.catalogue import load
from harness.data.dataset import Dataset
from harness.experiments import libraries
from harness.machine import pagecache
from harness.run.measure import measure, touch
from harness.run.stores import store_path
from loaders import decoding
from loadstone import BlockLoader, BlockShuffling, Matrix, Minibatch, open_h5ad
from loadstone.codecs import kernel, registry
from loadstone.reading import arrays, matrix, plan
from loadstone.reading.plan import Copies

TIMING = Timing(warmup_s=3, measure_s=3)  # the warm-up covers the first epoch, which verifies all checksums
REPEATS = 3
LIBRARY_REPEATS = 5
SETTINGS = (16, 64), (512, 256)
SETTING = {"block_size": 16, "fetch_factor": 64, "aligned": True, "output": "csr"}

CHUNKS = 200  # in memory
ZARR_CHUNK = 90_847  # elements, of annbatch's store of tahoe-mini
COLD_CELLS = 60_000  # fewer than the set has, so that no cell of the window has been read before


class Fresh:
    """Memory that is never reused."""

    def empty(self, n: int, dtype: type) -> np.ndarray:
        return np.empty(n, dtype)


def _zeroed_at_once(data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, n_genes: int) -> np.ndarray:
    x = np.zeros((len(indptr) - 1, n_genes), np.float32)
    _add(data, indices, indptr, x)
    return x


@numba.njit(nogil=True)
def _add(data, indices, indptr, x):
    for row in range(len(indptr) - 1):
        for k in range(indptr[row], indptr[row + 1]):
            x[row, np.uint32(indices[k])] += data[k]


def _both(copies: Sequence[Copies], size: int) -> Iterator[list[Copies]]:
    """Tasks with an equal share of all arrays, so that a task reads the indices and the values of the same rows."""
    n = -(-sum(len(each.of) for each in copies) // size)
    for k in range(n):
        yield [each.cut(slice(len(each.of) * k // n, len(each.of) * (k + 1) // n)) for each in copies]


class Part(NamedTuple):
    """How a part is switched off, and the setting in which it is measured.

    replaced: attributes of the `Matrix`. patched: attributes of modules, for what no single matrix has.
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
    "reused buffers": Part({"memory": Fresh()}),
    "reused buffers, blocks of 512, fetches of 16,384 cells": Part(
        {"memory": Fresh()}, setting=SETTING | {"block_size": 512, "fetch_factor": 256}
    ),
    "dense rows zeroed one at a time, not all at once": Part(
        {"densify": _zeroed_at_once}, setting=SETTING | {"output": "dense"}
    ),
    "decoding threads at a lower priority than the consumer, dense": Part(
        patched={(matrix, "NICENESS"): 0}, setting=SETTING | {"output": "dense"}
    ),
    "read hints to the kernel, from a cold cache": Part(patched={(kernel, "ADVISE"): 0}, cold=True),
    "read hints to the kernel, in the page cache": Part(patched={(kernel, "ADVISE"): 0}),
}


def opened(dataset: Dataset, output: str, verify: str = "first", loader: str = "native") -> Matrix:
    """The files of the data set, or the zarr store of our loader `native_zarr`."""
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
    """Cells/s in minibatches of 64, after the first epoch; from a cold cache, of the first cells.

    replaced: attributes that the source is given in place of its own.
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
    """Cells/s of the first epoch, with the files in the page cache."""
    batches = BlockLoader(opened(dataset, "csr", verify), sampler=BlockShuffling(block_size), fetch_factor=fetch_factor)
    try:
        return _rate_of(batches.epoch(0), dataset.n_cells)
    finally:
        batches.close()


def _rate_of(batches: Iterator[Minibatch], most: int) -> float:
    start, rows = time.perf_counter(), 0
    for batch in batches:
        rows += touch(batch)
        if rows >= most:
            break
    return rows / (time.perf_counter() - start)


@contextmanager
def without(patched: dict[tuple[Any, str], Any]) -> Iterator[None]:
    with ExitStack() as patches:
        for (module, name), value in patched.items():
            patches.enter_context(patch.object(module, name, value))
        yield


def compare(dataset: Dataset, name: str, say: Callable[[str], None]) -> None:
    part = PARTS[name]
    rates = []
    for _ in range(REPEATS):
        with without(part.patched):
            options = part.setting | {"aligned": part.aligned, "verify": part.verify, "replaced": part.replaced}
            off = rate(dataset, **options, cold=part.cold)
        rates.append((off, rate(dataset, **part.setting, cold=part.cold)))
    off, with_it = np.median(rates, axis=0)
    say(f"| {name} | {off:,.0f} | {with_it:,.0f} | {times(b / a for a, b in rates)} |")


def verification(dataset: Dataset, say: Callable[[str], None]) -> None:
    """The choices of `verify` in turn, in the first epoch and later, each compared with "never"."""
    for setting in SETTINGS:
        rates = {verify: [] for verify in ("never", "first", "always")}
        for _ in range(REPEATS):
            for verify, found in rates.items():
                later = rate(dataset, *setting, aligned=True, output="csr", verify=verify)
                found.append((first_epoch(dataset, *setting, verify), later))
        for verify, found in rates.items():
            early, late = np.median(found, axis=0)
            shares = " | ".join(times(a[i] / b[i] for a, b in zip(found, rates["never"], strict=True)) for i in (0, 1))
            say(f"| {setting} | {verify} | {early:,.0f} | {late:,.0f} | {shares} |")


def against_libraries(dataset: Dataset, say: Callable[[str], None]) -> None:
    """The whole loader, with the libraries' decoders and with ours in turn, and an A/A pair of ours."""
    for loader in ("native", "native_zarr"):
        for setting in SETTINGS:
            for verify in ("first", "always") if loader == "native" else ("",):
                rates = []
                for _ in range(LIBRARY_REPEATS):
                    options = {"aligned": True, "output": "csr", "verify": verify, "loader": loader}
                    own = rate(dataset, *setting, **options)
                    with without({(plan, "copy_pieces"): libraries.copy_pieces}):
                        library = rate(dataset, *setting, **options)
                    rates.append((library, own, rate(dataset, *setting, **options)))
                library, own, _ = np.median(rates, axis=0)
                gained, noise = times(b / a for a, b, _ in rates), times(c / b for _, b, c in rates)
                say(f"| {loader} | {setting} | {verify} | {library:,.0f} | {own:,.0f} | {gained} | {noise} |")


def times(ratios: Iterable[float]) -> str:
    """Their median and their range."""
    least, *_, most = ordered = sorted(ratios)
    return f"{np.median(ordered):.2f} ({least:.2f} to {most:.2f})"


def chunked(array: arrays.Chunked, dtype: type) -> tuple[arrays.Chunked, list[bytes]]:
    """Some elements of an array, compressed as annbatch does: the array, and its chunks."""
    elements = np.concatenate([array.codec.decode(array.packed(i), array.whole) for i in range(CHUNKS)]).astype(dtype)
    pack = numcodecs.Blosc("lz4", 5, numcodecs.Blosc.SHUFFLE).encode
    whole = len(elements) // ZARR_CHUNK * ZARR_CHUNK
    packed = [bytes(pack(chunk)) for chunk in elements[:whole].reshape(-1, ZARR_CHUNK)]
    return arrays.Chunked("", len(elements), ZARR_CHUNK, registry.blosc(elements.dtype), array.table), packed


def decoders(dataset: Dataset, say: Callable[[str], None]) -> None:
    """On one thread. libdeflate verifies the checksum; ours leaves that to the caller."""
    source = open_h5ad(dataset.paths)
    data, indices = source.parts[0].data, source.parts[0].indices
    for name, array, packed in (
        ("DEFLATE, indices", indices, [indices.packed(i) for i in range(CHUNKS)]),
        ("DEFLATE, values", data, [data.packed(i) for i in range(CHUNKS)]),
        ("Blosc's LZ4, indices of 16 bits", *chunked(indices, np.uint16)),
        ("Blosc's LZ4, values", *chunked(data, np.float32)),
    ):
        ways = [partial(array.codec.decode, chunk, array.whole) for chunk in packed], decoding.works(array, packed)
        taken = [[_quickest(works) for works in ways] for _ in range(REPEATS)]
        library, own = 1e6 / len(packed) * np.median(taken, axis=0)
        say(f"| {name} | {library:.0f} | {own:.0f} | {times(a / b for a, b in taken)} |")
    source.close()


def _quickest(works: Sequence[Callable[[], object]]) -> float:
    """Seconds for all of them: the best of five runs."""
    return min(timeit.repeat(lambda: [work() for work in works], number=1, repeat=5))


def main() -> None:
    dataset = load(sys.argv[1] if len(sys.argv) > 1 else "tahoe-mini")
    print("| way | without, cells/s | with, cells/s | times |\n| --- | ---: | ---: | ---: |")
    rate(dataset, **SETTING)  # brings the files into the page cache
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
