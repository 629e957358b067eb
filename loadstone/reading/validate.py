"""The trust boundary: the metadata of a file is validated here before a compiled loop relies on it.

The loops use row starts, chunk offsets and lengths without further checks. Gene indices are not validated here but when
they are copied (`kernel.scatter`). Errors in a file are ValueErrors that name the array (`name` below).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from loadstone.codecs.compiled import compiled

MOST_GENES = 2**31 - 1  # minibatches hold genes as int32
DEFLATE_RATIO = 1_040  # DEFLATE makes at most 1,032 bytes of one; a header and a checksum come on top
INCOMPRESSIBLE = 1.05  # a codec makes incompressible bytes longer by less than this factor and HEADER_BYTES
HEADER_BYTES = 4_096
MOST_CHARACTERS = 300  # of a text that a message quotes
NUMBERS = "iufb"  # kinds of NumPy dtypes


def one_line(error: BaseException) -> str:
    """The message of an error on one line, cut to MOST_CHARACTERS; the name of its type if it has no message."""
    return " ".join(str(error).split())[:MOST_CHARACTERS] or type(error).__name__


def choice(name: str, value: Any, choices: Sequence[str]) -> None:
    """ValueError if the value of the argument `name` is none of the choices."""
    if value not in choices:
        raise ValueError(f"{name} is {value!r}; it can be {' or '.join(map(repr, choices))}")


def count(name: str, value: Any) -> int:
    """The value of the argument `name` as an int. ValueError unless it is a whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise ValueError(f"{name} is {value!r}; it must be a whole number from 1 up")
    return int(value)


def row_ids(rows: Any, n: int) -> np.ndarray:
    """Row ids as int64 (len(rows),). IndexError for an id that is outside 0 to n - 1 or not a whole number."""
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
    """(number of rows, number of genes) from the shape attribute of a matrix; ValueError if it is invalid."""
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
    """The length of an array. ValueError unless it has one dimension, and a dtype of one of these kinds."""
    if not hasattr(array, "dtype") or len(array.shape) != 1:
        raise ValueError(f"{name} is no array of one dimension")
    if array.dtype.kind not in kinds:
        raise ValueError(f"{name} holds {array.dtype}, not {'numbers' if 'f' in kinds else 'whole numbers'}")
    return int(array.shape[0])


def held(name: str, array_bytes: int, stored_bytes: int) -> None:
    """ValueError if an array that is to be read whole is more than DEFLATE_RATIO times as large as on disk."""
    if array_bytes > DEFLATE_RATIO * stored_bytes + HEADER_BYTES:
        raise ValueError(f"{name} should hold {array_bytes:,} bytes, but only {stored_bytes:,} bytes are stored")


def matrix(name: str, rows: int, indptr: Any, data: Any, indices: Any) -> None:
    """ValueError unless the lengths and dtypes of the three arrays fit a CSR matrix with this number of rows."""
    n_data, n_indices = vector(f"{name}/data", data), vector(f"{name}/indices", indices, "iu")
    n_indptr = vector(f"{name}/indptr", indptr, "iu")
    if n_data != n_indices:
        raise ValueError(f"{name}/data has {n_data:,} elements and {name}/indices has {n_indices:,}")
    if n_indptr != rows + 1:
        raise ValueError(f"{name}/indptr has {n_indptr:,} elements, but {rows:,} rows need {rows + 1:,}")


def row_starts(name: str, indptr: np.ndarray, n_elements: int) -> np.ndarray:
    """indptr as int64. ValueError unless it begins with 0, never falls and ends with `n_elements`.

    If it ended with less, the last elements would belong to no row. This happens when the file of its only zarr chunk
    is lost: the fill value 0 makes all rows empty.
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
    return starts


@compiled
def _first_fall(starts):
    """The index of the first row that ends before it starts; -1 if there is none."""
    falls = 0
    for row in range(len(starts) - 1):  # vector code, as it does not stop at the first such row
        falls += starts[row + 1] < starts[row]
    if falls:
        for row in range(len(starts) - 1):
            if starts[row + 1] < starts[row]:
                return row
    return -1


def chunks(name: str, place: np.ndarray, size: np.ndarray, chunk_bytes: int, end: int | np.ndarray) -> None:
    """ValueError if a chunk reaches beyond its file, is empty, or is too long for `chunk_bytes` bytes when decoded.

    place, size: the offset of each chunk in its file, and its stored size, in bytes. end: the size of the file in
    bytes, one number for all chunks or one for each.
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
    """ValueError if two chunks of a file overlap. tables: for each array its name, chunk offsets and chunk sizes."""
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
    indptr: np.ndarray,
    indices: np.ndarray,
    n_genes: int,
    start: int,
    begin: np.ndarray,
    end: np.ndarray,
) -> None:
    """ValueError if a row to be checked has an index outside 0 to n_genes - 1; names the chunk, element and row.

    indices: consecutive elements of the array, from element `start` on. Row i of those to be checked has the elements
    begin[i] to end[i]. indptr: the element at which each row of the file begins. chunk: the number of elements per
    chunk; None: there are no chunks.
    """
    wrong = np.flatnonzero((indices < 0) | (indices >= n_genes)) + start
    for element in wrong:
        if ((begin <= element) & (element < end)).any():
            row = np.searchsorted(indptr, element, "right") - 1
            place = name if chunk is None else f"{name}, chunk {element // chunk}"
            place += f", element {element}, of row {row},"
            raise ValueError(f"{place} is gene {indices[element - start]}, but genes are 0 to {n_genes - 1}")
