"""Validates the metadata of files, and the arguments of callers, before a compiled loop relies on them.

The loops use row starts, chunk offsets and lengths without further checks. Gene indices are validated later, when they
are copied: by `kernel.scatter` in the compiled loop, and by `genes` elsewhere. An invalid file raises a ValueError that
names the array; this name is the argument `name` of the functions below.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from loadstone.codecs.compiled import compiled
from loadstone.reading.row_starts import RowStarts

MOST_GENES = 2**31 - 1  # minibatches hold genes as int32
DEFLATE_RATIO = 1_040  # DEFLATE decodes a byte to at most 1,032 bytes; the margin is for a header and a checksum
INCOMPRESSIBLE = 1.05  # a codec lengthens incompressible data by less than this factor plus HEADER_BYTES
HEADER_BYTES = 4_096
MOST_CHARACTERS = 300  # of a text that a message quotes
NUMBERS = "iufb"  # kinds of NumPy dtypes


def one_line(error: BaseException) -> str:
    """The message of an error on one line, cut to MOST_CHARACTERS; the name of its type if it has no message."""
    return " ".join(str(error).split())[:MOST_CHARACTERS] or type(error).__name__


def choice(name: str, value: Any, choices: Sequence[str]) -> None:
    """ValueError if the value of the argument `name` is not one of `choices`."""
    if value not in choices:
        raise ValueError(f"{name} is {value!r}; it can be {' or '.join(map(repr, choices))}")


def count(name: str, value: Any) -> int:
    """The value of the argument `name` as an int. ValueError unless it is a whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise ValueError(f"{name} is {value!r}; it must be a whole number from 1 up")
    return int(value)


def row_ids(rows: Any, n: int) -> np.ndarray:
    """Row ids as int64 (len(rows),). IndexError if an id is not a whole number from 0 to n - 1, or rows is not 1-D."""
    ids = np.asarray(rows)
    if ids.ndim != 1:
        raise IndexError(f"row ids must be a list of one dimension, not {ids.ndim}")
    if ids.dtype.kind not in "iu" and len(ids):
        raise IndexError(f"row ids must be whole numbers, not {ids.dtype} such as {ids[0]!r}")
    if len(ids) and not (ids.min() >= 0 and ids.max() < n):
        wrong = ids.min() if ids.min() < 0 else ids.max()
        raise IndexError(f"row {wrong} is not one of the {n:,} rows, 0 to {n - 1}")
    return ids.astype(np.int64, copy=False)


def shape(name: str, value: Any) -> tuple[int, int]:
    """(number of rows, number of genes) from the shape attribute `value` of a matrix.

    ValueError unless it is two whole numbers of at least 0, the second at most MOST_GENES.
    """
    try:
        rows, genes = (int(n) for n in np.asarray(value).tolist())
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name}: its shape is {str(value)[:80]!r}, not two whole numbers") from error
    if rows < 0 or not 0 <= genes <= MOST_GENES:
        raise ValueError(
            f"{name}: its shape is {rows} x {genes}; rows and genes are counted from 0, genes to 2**31 - 1"
        )
    return rows, genes


def vector(name: str, array: Any, kinds: str = NUMBERS) -> int:
    """The length of an array. ValueError unless it has one dimension and a dtype whose `kind` is one of `kinds`."""
    if not hasattr(array, "dtype") or len(array.shape) != 1:
        raise ValueError(f"{name} is no array of one dimension")
    if array.dtype.kind not in kinds:
        raise ValueError(f"{name} holds {array.dtype}, not {'numbers' if 'f' in kinds else 'whole numbers'}")
    return int(array.shape[0])


def held(name: str, array_bytes: int, stored_bytes: int) -> None:
    """ValueError if an array of array_bytes cannot come from stored_bytes on disk, by DEFLATE_RATIO and HEADER_BYTES.

    Called before an array is read whole, so that a damaged length does not allocate too much memory.
    """
    if array_bytes > DEFLATE_RATIO * stored_bytes + HEADER_BYTES:
        raise ValueError(f"{name} should hold {array_bytes:,} bytes, but only {stored_bytes:,} bytes are stored")


def matrix(name: str, rows: int, indptr: Any, data: Any, indices: Any) -> None:
    """ValueError unless the lengths and dtypes of the three arrays are those of a CSR matrix with `rows` rows."""
    n_data, n_indices = vector(f"{name}/data", data), vector(f"{name}/indices", indices, "iu")
    n_indptr = vector(f"{name}/indptr", indptr, "iu")
    if n_data != n_indices:
        raise ValueError(f"{name}/data has {n_data:,} elements and {name}/indices has {n_indices:,}")
    if n_indptr != rows + 1:
        raise ValueError(f"{name}/indptr has {n_indptr:,} elements, but {rows:,} rows need {rows + 1:,}")


def row_starts(name: str, indptr: np.ndarray, n_elements: int) -> RowStarts:
    """Where rows begin. ValueError unless indptr, (rows + 1,), begins with 0, never falls and ends with `n_elements`.

    With a smaller last value, the last elements would belong to no row. For example, if the only chunk file of a zarr
    indptr is missing, zarr returns the fill value 0 everywhere, so that all rows would be empty.
    """
    if not len(indptr):
        raise ValueError(f"{name} is empty; it holds at least one 0")
    if indptr.dtype == np.uint64 and int(indptr.max()) > np.iinfo(np.int64).max:
        raise ValueError(f"{name} holds {int(indptr.max())}, but there are {n_elements:,} elements")
    starts = indptr.astype(np.int64, copy=False)
    if starts[0] != 0:
        raise ValueError(f"{name} begins with {starts[0]}, not with 0")
    row = _first_fall(starts)
    if row >= 0:
        raise ValueError(f"{name} falls at row {row:,}: from {starts[row]} to {starts[row + 1]}")
    if starts[-1] > n_elements:
        row = int(np.searchsorted(starts, n_elements, "right")) - 1
        raise ValueError(
            f"{name} ends with {starts[-1]}, but there are {n_elements:,} elements (passed in row {row:,})"
        )
    if starts[-1] < n_elements:
        raise ValueError(f"{name} ends with {starts[-1]}, so that the last of {n_elements:,} elements belong to no row")
    return RowStarts.of(name, starts)


@compiled
def _first_fall(starts):
    """The index of the first row that ends before it starts; -1 if there is none."""
    falls = 0
    for row in range(len(starts) - 1):  # without an early exit, so that the compiler vectorizes the loop
        falls += starts[row + 1] < starts[row]
    if falls:
        for row in range(len(starts) - 1):
            if starts[row + 1] < starts[row]:
                return row
    return -1


def chunks(name: str, place: np.ndarray, size: np.ndarray, chunk_bytes: int, end: int | np.ndarray) -> None:
    """ValueError if a chunk is empty, reaches beyond its file, or has more stored bytes than any codec would need.

    place, size: the offset of each chunk in its file and its stored size, both in bytes, int64 (chunks,). chunk_bytes:
    the decoded size of a chunk in bytes. end: the size of the file in bytes, one number for all chunks or one for each.
    """
    most = int(chunk_bytes * INCOMPRESSIBLE) + HEADER_BYTES
    for wrong, why in (
        ((size <= 0) | (size > most), f"no chunk of {chunk_bytes:,} bytes is stored so"),
        ((place < 0) | (place > end - size), f"the file ends at byte {np.max(end, initial=0):,}"),
    ):
        if wrong.any():
            i = int(np.flatnonzero(wrong)[0])
            raise ValueError(f"{name}, chunk {i}, should be {size[i]} bytes at offset {place[i]}: {why}")


def disjoint(tables: Sequence[tuple[str, np.ndarray, np.ndarray]]) -> None:
    """ValueError if two chunks of a file overlap; it names both.

    tables: for each array in the file, its name, and the offsets and stored sizes of its chunks in bytes.
    """
    place = np.concatenate([each[1] for each in tables])
    size = np.concatenate([each[2] for each in tables])
    order = np.argsort(place)
    shared = np.flatnonzero((place + size)[order][:-1] > place[order][1:])
    if len(shared):
        first = np.cumsum([0, *(len(each[1]) for each in tables)])
        named = []
        for k in order[shared[0] : shared[0] + 2]:
            array = int(np.searchsorted(first, k, "right")) - 1
            named.append(f"{tables[array][0]}, chunk {k - first[array]}")
        raise ValueError(f"{' and '.join(named)} share bytes of the file")


def genes(
    name: str,
    chunk: int | None,
    starts: RowStarts,
    indices: np.ndarray,
    n_genes: int,
    start: int,
    begin: np.ndarray,
    end: np.ndarray,
) -> None:
    """ValueError if a requested row has a gene index outside 0 to n_genes - 1; it names the chunk, element and row.

    indices: consecutive elements of the array of gene indices, from element `start` on. Requested row i has the
    elements from begin[i] up to, but not including, end[i] of the whole array. Elements outside the requested rows are
    not checked. starts: where the rows of the whole file begin. chunk: the number of elements per chunk;
    None: there are no chunks.
    """
    wrong = np.flatnonzero((indices < 0) | (indices >= n_genes)) + start
    for element in wrong:
        if ((begin <= element) & (element < end)).any():
            row = starts.row_of(int(element))
            place = name if chunk is None else f"{name}, chunk {element // chunk}"
            place += f", element {element}, of row {row},"
            raise ValueError(f"{place} is gene {indices[element - start]}, but genes are 0 to {n_genes - 1}")
