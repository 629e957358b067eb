"""What each of the ways in which this loader is fast is worth: switched off alone, and compared with all of them on.

    python -m harness.experiments.ablation tahoe-mini

On files in the page cache, so of decoding and not of the disk, but for what is of the disk: that is measured on files
that are not in it, up to 60,000 cells. Each way is measured on and off in turn, three times.

Then what looking at checksums costs, in the first epoch and later. Then our own decoders against the libraries: in the
same compiled loop with the same checks, the whole loader; and for chunks in memory, the files' and the same values
packed as annbatch packs them.
"""

import sys
import time
import timeit
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, NamedTuple
from unittest.mock import patch

import numba
import numcodecs
import numpy as np

import loaders
from harness import pagecache
from harness.catalogue import load
from harness.condition import Timing
from harness.dataset import Dataset
from harness.experiments import libraries
from harness.measure import measure, touch
from harness.prepare import store_path
from loaders import decoding
from loadstone import BlockLoader, BlockShuffling, Matrix, Minibatch, open_h5ad
from loadstone.codecs import kernel, registry
from loadstone.reading import arrays, matrix, plan
from loadstone.reading.plan import Copies

TIMING = Timing(warmup_s=3, measure_s=3)  # the first epoch takes as long, and looks at all checksums
REPEATS = 3
LIBRARY_REPEATS = 5
SETTINGS = (16, 64), (512, 256)
SETTING = {"block_size": 16, "fetch_factor": 64, "aligned": True, "output": "csr"}

CHUNKS = 200  # in memory
ZARR_CHUNK = 90_847  # elements, of annbatch's store of tahoe-mini
COLD_CELLS = 60_000  # fewer than there are: the window ends before it meets cells that have been read


class Fresh:
    """Memory that is not used again."""

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
    """Tasks of which each takes an equal share of all arrays, so that it reads both of the same rows."""
    n = -(-sum(len(each.of) for each in copies) // size)
    for k in range(n):
        yield [each.cut(slice(len(each.of) * k // n, len(each.of) * (k + 1) // n)) for each in copies]


class Way(NamedTuple):
    """How one is switched off: what is patched, how blocks and checksums are without it; and where it is measured."""

    patched: dict[tuple[Any, str], Any]
    aligned: bool = True
    verify: str = "first"
    cold: bool = False
    setting: dict[str, Any] = SETTING


WAYS = {
    "blocks that follow the chunks": Way({}, aligned=False),
    "only the head of a chunk whose tail is not wanted": Way({}, verify="always"),
    "a compiled loop over chunks": Way({(registry, "C_FUNCTIONS"): {}}),
    "tasks of 128 chunks, not of 8": Way({(matrix, "PIECES_PER_TASK"): 8}),
    "indices and then values, not both in one task": Way({(matrix, "tasks"): _both}),
    "buffers used again": Way({(matrix, "Memory"): Fresh}),
    "buffers used again, blocks of 512, fetches of 16,384 cells": Way(
        {(matrix, "Memory"): Fresh}, setting=SETTING | {"block_size": 512, "fetch_factor": 256}
    ),
    "dense rows zeroed one at a time, not all at once": Way(
        {(matrix, "dense"): _zeroed_at_once}, setting=SETTING | {"output": "dense"}
    ),
    "threads that decode give way to the one that consumes, dense": Way(
        {(matrix, "NICENESS"): 0}, setting=SETTING | {"output": "dense"}
    ),
    "the disk told of what comes next, from a cold cache": Way({(kernel, "ADVISE"): 0}, cold=True),
    "the disk told of what comes next, in the page cache": Way({(kernel, "ADVISE"): 0}),
}


def opened(dataset: Dataset, output: str, verify: str = "first", loader: str = "native") -> Matrix:
    """The data set's files, or the zarr store of our loader `native_zarr`."""
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
) -> float:
    """Cells/s at batch 64, after the first epoch; of a cold cache, from asking for the first."""
    if cold:
        pagecache.evict(dataset.paths)
    source = opened(dataset, output, verify, loader)
    batches = BlockLoader(source, sampler=BlockShuffling(block_size, aligned), fetch_factor=fetch_factor)
    try:
        if cold:
            return _rate_of(batches.epoch(0), COLD_CELLS)
        trace = measure(batches, TIMING, time.perf_counter, epoch_rows=dataset.n_cells)
    finally:
        batches.close()
    return trace.rows / trace.seconds


def first_epoch(dataset: Dataset, block_size: int, fetch_factor: int, verify: str) -> float:
    """Cells/s of one epoch from its beginning, with the files in the page cache."""
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
    way = WAYS[name]
    rates = []
    for _ in range(REPEATS):
        with without(way.patched):
            off = rate(dataset, **way.setting | {"aligned": way.aligned}, cold=way.cold, verify=way.verify)
        rates.append((off, rate(dataset, **way.setting, cold=way.cold)))
    off, with_it = np.median(rates, axis=0)
    say(f"| {name} | {off:,.0f} | {with_it:,.0f} | {times(b / a for a, b in rates)} |")


def verification(dataset: Dataset, say: Callable[[str], None]) -> None:
    """Ways of looking at checksums, in turn: (first epoch, later), and each against none of heads."""
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
    """The whole loader, in turn by the libraries and by ours, with an A/A pair of ours."""
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
    """Some of an array's elements as annbatch writes them, and the chunks."""
    elements = np.concatenate([array.codec.decode(array.packed(i), array.whole) for i in range(CHUNKS)]).astype(dtype)
    pack = numcodecs.Blosc("lz4", 5, numcodecs.Blosc.SHUFFLE).encode
    whole = len(elements) // ZARR_CHUNK * ZARR_CHUNK
    packed = [bytes(pack(chunk)) for chunk in elements[:whole].reshape(-1, ZARR_CHUNK)]
    return arrays.Chunked("", len(elements), ZARR_CHUNK, registry.blosc(elements.dtype), array.table), packed


def decoders(dataset: Dataset, say: Callable[[str], None]) -> None:
    """On one thread; libdeflate looks at checksums, and ours leaves that to who calls it."""
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
    """Seconds that all of them take, at their best of five times."""
    return min(timeit.repeat(lambda: [work() for work in works], number=1, repeat=5))


def main() -> None:
    dataset = load(sys.argv[1] if len(sys.argv) > 1 else "tahoe-mini")
    print("| way | without, cells/s | with, cells/s | times |\n| --- | ---: | ---: | ---: |")
    rate(dataset, **SETTING)  # brings the files into the page cache
    for name in sorted(WAYS, key=lambda name: WAYS[name].cold):
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
