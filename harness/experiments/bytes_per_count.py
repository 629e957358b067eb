"""The bytes on disk and the decoding time of a count, of generated and of real files.

    python -m harness.experiments.bytes_per_count tahoe-mini FILE.h5ad

A data set has four rows. The first is of its files as they are: the bytes are those of all files, everything else is of
the first MOST_COUNTS counts of the first file. The others are of these counts, compressed again at anndata's level, in
chunks as long as those of Tahoe's files:

    long chunks   as they are
    int64         with indices of 8 bytes, as scipy has them for a matrix of more than 2**31 counts
    shuffled      with the counts of each gene in random cells, so that the genes of a cell are independent
    n genes       only of the first data set: as many genes as each other data set has, and as many counts a cell

"whole" is the files' size, with obs and var. The bits are the entropy of one gap between the ascending indices of a
cell, and of one count. The time is that of decoding whole chunks from memory in one thread, in microseconds for indices
and values of 1,000 counts: the median of REPEATS rounds, in which all rows take turns, and the range. libdeflate and
zlib also verify the checksum; ours leaves that to its caller.
"""

import ctypes
import sys
import time
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import NamedTuple

import h5py
import numpy as np
import scipy.sparse as sp

from harness.data.catalogue import entries, load
from harness.data.dataset import Dataset
from harness.data.synthetic.h5chunks import GZIP_LEVEL
from harness.errors import UserError
from harness.experiments import libraries
from loaders.decoding import inflating

MOST_COUNTS = 10_000_000
TIMED_COUNTS = 2_000_000  # that one round decodes
REPEATS = 9
LONG_CHUNK = entries()["tahoe-chunks"]["synthetic"]["chunk_values"]


class Stored(NamedTuple):
    """An array of `length` elements of `dtype` as zlib streams of `chunk` elements each."""

    packed: list[bytes]
    chunk: int
    length: int
    dtype: np.dtype

    @property
    def bytes_per_element(self) -> float:
        return sum(map(len, self.packed)) / self.length


class Row(NamedTuple):
    """whole: bytes of the files per count; None: they are no files. bits: entropies of a gap and of a count."""

    name: str
    cells: int
    counts: int
    indices_bytes: float
    values_bytes: float
    whole: float | None
    ones: float
    distinct: int
    bits: tuple[float, float]
    arrays: tuple[Stored, Stored]


def rows_of(dataset: Dataset, others: Sequence[Dataset] = ()) -> list[Row]:
    """The rows of a data set, with one for the number of genes of each of `others`, if it has fewer.

    Raises UserError if X is not a CSR matrix compressed with gzip and no other filter.
    """
    indices, values = (_stored(dataset.paths[0], name) for name in ("indices", "data"))
    cells, counts, indices_bytes, values_bytes = 0, 0, 0, 0
    for path in dataset.paths:
        with h5py.File(path) as file:
            cells += len(file["X/indptr"]) - 1
            counts += len(file["X/data"])
            indices_bytes += file["X/indices"].id.get_storage_size()
            values_bytes += file["X/data"].id.get_storage_size()
    whole = sum(path.stat().st_size for path in dataset.paths) / counts
    matrix = _first_cells(dataset.paths[0], dataset.n_genes)
    rows = [
        Row(
            dataset.name, cells, counts, indices_bytes / counts, values_bytes / counts, whole,
            *_statistics(matrix), (indices, values),
        )
    ]  # fmt: skip
    wide = matrix.copy()
    wide.indices = matrix.indices.astype(np.int64)
    variants = {"long chunks": matrix, "int64": wide, "shuffled": shuffled(matrix)}
    for other in others:
        like = _first_cells(other.paths[0], other.n_genes)
        if like.shape[1] < matrix.shape[1]:
            variants[f"{like.shape[1]:,} genes"] = narrowed(matrix, like.shape[1], like.nnz / like.shape[0])
    for how, variant in variants.items():
        arrays = _compress(variant.indices), _compress(variant.data)
        sizes = (array.bytes_per_element for array in arrays)
        name = f"{dataset.name}, {how}"
        rows.append(Row(name, variant.shape[0], variant.nnz, *sizes, None, *_statistics(variant), arrays))
    return rows


def _stored(path: Path, name: str) -> Stored:
    """The chunks of an array of X that hold its first MOST_COUNTS elements."""
    with h5py.File(path) as file:
        array = file["X"][name] if isinstance(file["X"], h5py.Group) else file["X"]
        if array.ndim != 1 or array.compression != "gzip" or array.shuffle or array.fletcher32 or not len(array):
            raise UserError(f"X/{name} of {path} is not an array compressed with gzip and no other filter.")
        chunk, length = array.chunks[0], min(len(array), MOST_COUNTS)
        packed = [array.id.read_direct_chunk((start,))[1] for start in range(0, length, chunk)]
        return Stored(packed, chunk, length, array.dtype)


def _first_cells(path: Path, n_genes: int) -> sp.csr_matrix:
    """The first cells of a file, with at most MOST_COUNTS counts."""
    with h5py.File(path) as file:
        indptr = file["X/indptr"][:].astype(np.int64)
        n = max(1, int(np.searchsorted(indptr, MOST_COUNTS, "right")) - 1)
        indptr = indptr[: n + 1]
        values, indices = (file["X"][name][: indptr[-1]] for name in ("data", "indices"))
    return sp.csr_matrix((values, indices, indptr), shape=(n, n_genes))


def _compress(elements: np.ndarray) -> Stored:
    """`elements` in chunks of LONG_CHUNK; the last is padded with zeros, as in HDF5."""
    parts = (elements[start : start + LONG_CHUNK] for start in range(0, len(elements), LONG_CHUNK))
    padded = (np.pad(part, (0, LONG_CHUNK - len(part))) for part in parts)
    packed = [zlib.compress(part.tobytes(), GZIP_LEVEL) for part in padded]
    return Stored(packed, LONG_CHUNK, len(elements), elements.dtype)


def shuffled(matrix: sp.csr_matrix) -> sp.csr_matrix:
    """The counts of each gene in random cells, so that the genes of a cell are independent of one another."""
    rng = np.random.default_rng(0)
    columns = matrix.tocsc()
    cells = [rng.choice(matrix.shape[0], n, replace=False) for n in np.diff(columns.indptr) if n]
    result = sp.csc_matrix((columns.data, np.concatenate(cells), columns.indptr), matrix.shape).tocsr()
    result.sort_indices()
    return result


def narrowed(matrix: sp.csr_matrix, n_genes: int, counts_per_cell: float) -> sp.csr_matrix:
    """The columns of `n_genes` genes.

    They are drawn from the most frequent genes, from so many of them that a cell has about `counts_per_cell`.
    """
    share = np.bincount(matrix.indices, minlength=matrix.shape[1]) / matrix.shape[0]
    order = np.argsort(-share, kind="stable")
    expected = n_genes * np.cumsum(share[order]) / np.arange(1, len(share) + 1)
    most = max(n_genes, int((expected >= counts_per_cell).sum()))
    genes = np.sort(np.random.default_rng(0).choice(order[:most], n_genes, replace=False))
    result = matrix[:, genes]
    result.sort_indices()
    return result


def _statistics(matrix: sp.csr_matrix) -> tuple[float, int, tuple[float, float]]:
    """The share of counts that are 1, the number of distinct counts, and the bits of a gap and of a count."""
    first = matrix.indptr[:-1][np.diff(matrix.indptr) > 0]
    gaps = np.diff(matrix.indices, prepend=0)
    gaps[first] = matrix.indices[first]
    return float((matrix.data == 1).mean()), len(np.unique(matrix.data)), (_entropy(gaps), _entropy(matrix.data))


def _entropy(values: np.ndarray) -> float:
    shares = np.unique(values, return_counts=True)[1] / len(values)
    return float(-(shares * np.log2(shares)).sum())


def decoders(array: Stored) -> tuple[list[Callable[[], None]], int]:
    """Functions that decode the same chunks with ours, libdeflate and zlib, and the number of elements.

    A chunk that is partly padding is left out, unless it is the only one. Few chunks are decoded several times.
    """
    whole_chunks = max(1, array.length // array.chunk)
    n, n_bytes = -(-TIMED_COUNTS // array.chunk), array.chunk * array.dtype.itemsize
    packed = list(islice(cycle(array.packed[:whole_chunks]), n))
    ours = inflating(packed, n_bytes)
    by_zlib = [partial(zlib.decompress, chunk, bufsize=n_bytes) for chunk in packed]
    return [partial(_all, ours), _libdeflate(packed, n_bytes), partial(_all, by_zlib)], n * array.chunk


def _all(works: Sequence[Callable[[], object]]) -> None:
    for work in works:
        work()


def _libdeflate(packed: list[bytes], whole: int) -> Callable[[], None]:
    library = ctypes.CDLL(libraries.PATH)
    library.libdeflate_alloc_decompressor.restype = ctypes.c_void_p
    decompress, out = library.libdeflate_zlib_decompress, ctypes.create_string_buffer(whole)
    pointer, size = ctypes.c_void_p, ctypes.c_size_t
    decompress.argtypes = [pointer, ctypes.c_char_p, size, pointer, size, pointer]
    decompressor = library.libdeflate_alloc_decompressor()

    def work() -> None:
        for chunk in packed:
            if decompress(decompressor, chunk, len(chunk), out, whole, None):
                raise ValueError("libdeflate cannot decode a chunk")

    return work


def decoding_times(rows: Sequence[Row]) -> list[list[str]]:
    """For each row the microseconds per 1,000 counts of each of `decoders`, as text: the median and the range."""
    works = [[decoders(array) for array in row.arrays] for row in rows]
    rounds = np.array([[_microseconds(arrays) for arrays in works] for _ in range(1 + REPEATS)])
    measured = rounds[1:].transpose(1, 2, 0)  # the first round compiles, and touches the memory
    return [[f"{np.median(us):.1f} ({us.min():.1f} to {us.max():.1f})" for us in row] for row in measured]


def _microseconds(arrays: Sequence[tuple[list[Callable[[], None]], int]]) -> np.ndarray:
    """For each decoder, the microseconds in which it decodes the indices and the values of 1,000 counts."""
    total = np.zeros(len(arrays[0][0]))
    for works, n in arrays:
        for i, work in enumerate(works):
            start = time.perf_counter()
            work()
            total[i] += 1e9 * (time.perf_counter() - start) / n
    return total


def table(rows: Sequence[Row]) -> str:
    lines = [
        "| file | cells | counts a cell | bytes a count: indices | values | whole | counts of 1 | distinct counts "
        "| bits: a gap | a count | us for 1,000 counts: ours | libdeflate | zlib |",
        "| --- |" + " ---: |" * 12,
    ]
    for row, times in zip(rows, decoding_times(rows), strict=True):
        whole = "" if row.whole is None else f"{row.whole:.2f}"
        lines.append(
            f"| {row.name} | {row.cells:,} | {row.counts / row.cells:,.0f} | {row.indices_bytes:.2f} "
            f"| {row.values_bytes:.2f} | {whole} | {row.ones:.0%} | {row.distinct:,} "
            f"| {row.bits[0]:.2f} | {row.bits[1]:.2f} | {' | '.join(times)} |"
        )
    return "\n".join(lines)


def main() -> None:
    if not sys.argv[1:]:
        sys.exit(__doc__)
    first, *others = (load(spec) for spec in sys.argv[1:])
    print(table(rows_of(first, others) + [row for other in others for row in rows_of(other)]))


if __name__ == "__main__":
    main()
