"""What decoding a store, and copying its cells into batches, would allow if nothing else had to be done.

    python -m loaders.native.ceiling tahoe-mini

prints beside the first what the loader reaches in blocks of 512 and buffers of 16,384 cells, measured in turn with it,
and its share: what reading, copying, shuffling and Python leave. Files are in the page cache. All cores the process
may use take part; `taskset -c 0` leaves it one. `python -m harness ceiling` measures all stores, and the disk.
"""

import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np

from harness.host import available_cores
from loaders.native.arrays import Chunked
from loaders.native.codecs import BLOSC, DEFLATE
from loaders.native.dense import fill
from loaders.native.inflate import hold, inflate_each, memory
from loaders.native.kernel import scatter
from loaders.native.lz4 import decode_each
from loaders.native.matrix import PIECES_PER_TASK, Matrix

HELD_BYTES = 400_000_000  # of compressed chunks, or of cells, held in memory: more than a processor's cache
BATCH = 64  # cells
VALUE_BYTES = 4
SECONDS = 4.0
REPEATS = 3
SETTING = {"block_size": 512, "fetch_factor": 256, "aligned": True, "output": "csr"}


def of_store(source: Matrix, seconds: float) -> dict[str, object]:
    """Cells/s that decoding (None: nothing is compressed) and copying, by output, would allow; piece_bytes: of a
    compressed chunk, or of the values of a cell."""
    return {
        "decode_cells_per_s": decoded_cells_per_s(source, seconds),
        "copy_cells_per_s": {output: copied_cells_per_s(source, output, seconds) for output in ("csr", "dense")},
        "piece_bytes": _piece_bytes(source),
    }


def decoded_cells_per_s(source: Matrix, seconds: float) -> float | None:
    """With one thread a core, over chunks spread evenly over the store, for at least so long."""
    arrays = [array for part in source.parts for array in (part.data, part.indices)]
    if not all(isinstance(array, Chunked) for array in arrays):
        return None
    n_chunks = sum(-(-array.length // array.chunk) for array in arrays)
    step = max(1, round(n_chunks * _piece_bytes(source) / HELD_BYTES))
    held, elements = [], 0
    for array in arrays:
        chunks = range(0, -(-array.length // array.chunk), step)
        elements += sum(min(array.chunk, array.length - i * array.chunk) for i in chunks)
        held += works(array, [array.packed(i) for i in chunks])

    def decode(share: Sequence[Callable[[], object]]) -> int:
        for work in share:
            work()
        return len(share)

    shares = [held[core :: source.threads] for core in range(source.threads)]
    # Each cell's values and indices: two elements for each of its counts.
    per_cell = 2 * _nnz(source) / len(source)
    return _rate(decode, shares, seconds) * elements / len(held) / per_cell


def works(array: Chunked, packed: list[bytes]) -> list[Callable[[], object]]:
    """Each decodes some chunks, by what the loader decodes whole ones with."""
    compiled = array.codec.compiled if array.table else None
    bundles = [packed[i : i + PIECES_PER_TASK] for i in range(0, len(packed), PIECES_PER_TASK)]
    if compiled == DEFLATE:
        nothing = np.empty((0, array.whole), np.uint8)
        return [
            partial(inflate_each, hold(bundle, array.whole), *memory(), array.whole, False, nothing)
            for bundle in bundles
        ]
    room = np.empty((2, array.whole), np.uint8)
    if compiled == BLOSC and decode_each(*_joined(packed[:1]), *room):
        return [partial(decode_each, *_joined(bundle), *np.empty_like(room)) for bundle in bundles]
    return [partial(array.codec.decode, chunk) for chunk in packed]


def _joined(chunks: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
    return np.frombuffer(b"".join(chunks), np.uint8), np.cumsum([0, *map(len, chunks)])


def copied_cells_per_s(source: Matrix, output: str, seconds: float) -> float:
    """With one thread a core, rows in memory in random order into batches whose memory is used again."""
    n = min(len(source), max(BATCH * source.threads, int(HELD_BYTES / (2 * VALUE_BYTES * _nnz(source) / len(source)))))
    cells = source.gather(np.arange(n)).result()
    begin, end = cells.indptr[:-1], cells.indptr[1:]
    orders = np.array_split(np.random.default_rng(0).permutation(n), source.threads)

    def copy(share: tuple) -> int:
        rows, target, values, indices = share
        for held, out in ((cells.data, values), (cells.indices, indices)):
            scatter(held, 0, begin[rows], end[rows], target, out)
        return len(rows)

    def densify(share: tuple) -> int:
        first, stop, x = share
        for start in range(first, stop, BATCH):
            batch = cells.cut(start, min(start + BATCH, stop))
            fill(*batch, x[: len(batch.indptr) - 1])
        return stop - first

    if output == "csr":
        shares = []
        for rows in orders:
            edges = np.cumsum([0, *(end - begin)[rows]])
            memory = (np.empty(edges[-1], part.dtype) for part in (cells.data, cells.indices))
            shares.append((rows, edges[:-1], *memory))
        return _rate(copy, shares, seconds)
    cuts = np.linspace(0, n, source.threads + 1).astype(int)
    memory = [np.empty((BATCH, source.n_genes), np.float32) for _ in orders]
    return _rate(densify, list(zip(cuts, cuts[1:], memory, strict=False)), seconds)


def _rate(work: Callable[[object], int], shares: Sequence[object], seconds: float) -> float:
    """What is done in a second, by a thread a share, each of which is worked off again and again for so long."""

    def again(share: object, stop: float) -> int:
        done = work(share)
        while time.perf_counter() < stop:
            done += work(share)
        return done

    with ThreadPoolExecutor(len(shares)) as pool:
        list(pool.map(work, shares))  # compiles, and brings the memory in
        start = time.perf_counter()
        done = sum(pool.map(again, shares, [start + seconds] * len(shares)))
        return done / (time.perf_counter() - start)


def _nnz(source: Matrix) -> int:
    return sum(int(part.indptr[-1]) for part in source.parts)


def _piece_bytes(source: Matrix) -> int:
    array = source.parts[0].data
    if isinstance(array, Chunked):
        sample = range(0, -(-array.length // array.chunk), max(1, array.length // array.chunk // 32))
        return round(np.mean([len(array.packed(i)) for i in sample]))
    return max(1, round(VALUE_BYTES * _nnz(source) / len(source)))


def main() -> None:
    # Not at the top: every worker of this loader imports this module.
    from harness.catalogue import load
    from loaders.native.ablation import rate
    from loaders.native.h5ad import open_h5ad

    dataset = load(sys.argv[1] if len(sys.argv) > 1 else "tahoe-mini")
    rate(dataset, **SETTING)  # brings the files into the page cache
    source = open_h5ad(dataset.paths)
    pairs = [(decoded_cells_per_s(source, SECONDS), rate(dataset, **SETTING)) for _ in range(REPEATS)]
    source.close()
    ceiling, reached = np.median(pairs, axis=0)
    shares = sorted(mine / alone for alone, mine in pairs)
    print(
        f"cores {available_cores()}: decoding alone {ceiling:,.0f} cells/s, native {reached:,.0f}, "
        f"a share of {np.median(shares):.0%} ({shares[0]:.0%} to {shares[-1]:.0%})"
    )


if __name__ == "__main__":
    main()
