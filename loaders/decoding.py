"""Measures the rates of decoding alone and of copying alone, in cells/s.

Each is an upper bound on the throughput of our loader with a store. The data is in memory before the clock starts. All
cores that the process may use take part; `taskset -c 0` limits it to one.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from loadstone.codecs.deflate.inflate import hold, inflate_each, memory
from loadstone.codecs.kernel import scatter
from loadstone.codecs.lz4 import decode_each
from loadstone.codecs.registry import BLOSC, DEFLATE, Codec
from loadstone.reading.arrays import Chunked
from loadstone.reading.densify import Densifier
from loadstone.reading.matrix import PIECES_PER_TASK, Matrix

SAMPLE_BYTES = 400_000_000  # compressed chunks, or cells, that are kept in memory; more than a processor's cache holds
BATCH = 64  # cells
VALUE_BYTES = 4


def of_store(source: Matrix, seconds: float) -> dict[str, object]:
    """The dict that `Loader.ceiling` returns, for a store that is open as `source`.

    Each rate is measured for at least `seconds`.
    """
    return {
        "decode_cells_per_s": decoded_cells_per_s(source, seconds),
        "copy_cells_per_s": {output: copied_cells_per_s(source, output, seconds) for output in ("csr", "dense")},
        "piece_bytes": _piece_bytes(source),
    }


def decoded_cells_per_s(source: Matrix, seconds: float) -> float | None:
    """Cells/s that one thread per core decodes; None if some array of the store has no chunks.

    The threads decode a sample of the chunks, spread evenly over the store. The measurement takes at least `seconds`.
    """
    arrays = [array for part in source.parts for array in (part.data, part.indices)]
    if not all(isinstance(array, Chunked) for array in arrays):
        return None
    n_chunks = sum(-(-array.length // array.chunk) for array in arrays)
    step = max(1, round(n_chunks * _piece_bytes(source) / SAMPLE_BYTES))
    queue = deque[tuple[int, Callable[[], object]]]()
    for array in arrays:
        chunks = range(0, -(-array.length // array.chunk), step)
        elements = [min(array.chunk, array.length - i * array.chunk) for i in chunks]
        queue.extend(zip(map(sum, bundles(elements)), works(array, [array.packed(i) for i in chunks]), strict=True))

    def decode() -> int:
        n, work = queue.popleft()  # removed, so that no other thread uses `work` and its buffers
        work()
        queue.append((n, work))
        return n

    # A non-zero count is two elements: its value and its index.
    per_cell = 2 * _nnz(source) / len(source)
    return _rate([decode] * min(source.threads, len(queue)), seconds) / per_cell


def bundles(chunks: list[Any]) -> list[list[Any]]:
    """The chunks in groups of PIECES_PER_TASK, the maximum number of chunks that one task of the loader decodes."""
    return [chunks[i : i + PIECES_PER_TASK] for i in range(0, len(chunks), PIECES_PER_TASK)]


def works(array: Chunked, packed: list[bytes]) -> list[Callable[[], object]]:
    """For each group of `bundles(packed)`, a function that decodes the group with the decoder that the loader uses.

    packed: compressed chunks of `array`. Each function has its own buffers, and is not thread-safe.
    """
    compiled = array.codec.compiled if array.table else None
    if compiled == DEFLATE:
        return inflating(packed, array.whole)
    room = np.empty((2, array.whole), np.uint8)
    if compiled == BLOSC and decode_each(*_joined(packed[:1]), *room):
        return [partial(decode_each, *_joined(bundle), *np.empty_like(room)) for bundle in bundles(packed)]
    return [partial(_decode_alone, array.codec, bundle, array.whole) for bundle in bundles(packed)]


def inflating(packed: list[bytes], whole: int) -> list[Callable[[], object]]:
    """As `works`, for zlib streams that decode to `whole` bytes each."""
    no_results = np.empty((0, whole), np.uint8)
    return [
        partial(inflate_each, hold(bundle, whole), *memory(), whole, False, no_results) for bundle in bundles(packed)
    ]


def _decode_alone(codec: Codec, packed: list[bytes], whole: int) -> None:
    for chunk in packed:
        codec.decode(chunk, whole)


def _joined(chunks: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
    return np.frombuffer(b"".join(chunks), np.uint8), np.cumsum([0, *map(len, chunks)])


def copied_cells_per_s(source: Matrix, output: str, seconds: float) -> float:
    """Cells/s that one thread per core copies within memory. The measurement takes at least `seconds`.

    output: with "csr", rows are copied in random order into CSR arrays that are reused; with "dense", rows are copied
    in file order into dense batches of BATCH rows.
    """
    cell_bytes = 2 * VALUE_BYTES * _nnz(source) / len(source)
    n = min(len(source), max(BATCH * source.threads, int(SAMPLE_BYTES / cell_bytes)))
    cells = source.gather(np.arange(n)).result()
    begin, end = cells.indptr[:-1], cells.indptr[1:]
    orders = np.array_split(np.random.default_rng(0).permutation(n), source.threads)

    def copy(share: tuple) -> int:
        rows, target, values, indices = share
        for stored, out in ((cells.data, values), (cells.indices, indices)):
            scatter(stored, 0, begin[rows], end[rows], target, out, -1)
        return len(rows)

    def densify(share: tuple) -> int:
        first, stop = share
        densifier, x = Densifier(source.n_genes, np.float32), np.empty((BATCH, source.n_genes), np.float32)
        for start in range(first, stop, BATCH):
            batch = cells.cut(start, min(start + BATCH, stop))
            densifier.write(*batch, x[: len(batch.indptr) - 1])
        return stop - first

    if output == "csr":
        shares = []
        for rows in orders:
            edges = np.cumsum([0, *(end - begin)[rows]])
            buffers = (np.empty(edges[-1], part.dtype) for part in (cells.data, cells.indices))
            shares.append((rows, edges[:-1], *buffers))
        return _rate([partial(copy, share) for share in shares], seconds)
    cuts = np.linspace(0, n, source.threads + 1).astype(int)
    return _rate([partial(densify, share) for share in pairwise(cuts)], seconds)


def _rate(workers: Sequence[Callable[[], int]], seconds: float) -> float:
    """The sum of the rates of all workers: the total of a worker's results, per second.

    Each worker is called once to warm up, and then repeatedly for at least `seconds`, in a separate thread.
    """

    def repeat(work: Callable[[], int], start: float) -> float:
        done, now = 0, start
        while now < start + seconds:
            done += work()
            now = time.perf_counter()
        return done / (now - start)

    with ThreadPoolExecutor(len(workers)) as pool:
        list(pool.map(lambda work: work(), workers))  # compiles, and touches the memory
        return sum(pool.map(repeat, workers, [time.perf_counter()] * len(workers)))


def _nnz(source: Matrix) -> int:
    return sum(part.starts.total for part in source.parts)


def _piece_bytes(source: Matrix) -> int:
    array = source.parts[0].data
    if isinstance(array, Chunked):
        sample = range(0, -(-array.length // array.chunk), max(1, array.length // array.chunk // 32))
        return round(np.mean([len(array.packed(i)) for i in sample]))
    return max(1, round(VALUE_BYTES * _nnz(source) / len(source)))
