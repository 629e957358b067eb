"""Labels of cells: a column of the obs tables of h5ad files, as codes."""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np

from loadstone.reading.files import Files, all_urls, describing, several
from loadstone.remote.metadata import Metadata, in_rounds
from loadstone.remote.objects import CONNECTIONS, open_objects
from loadstone.remote.urls import Storage

MISSING = -1


class Codes(NamedTuple):
    """A column of obs as codes. codes: for each cell, the index of its value in `values`, int64 (cells,).

    The code -1 means that the value is missing. values: the distinct values as text; first those of the first file,
    then the new ones of each further file. Within a file, categories have the order of the file, and other values are
    sorted.
    """

    codes: np.ndarray
    values: list[str]


def obs_codes(paths: Path | str | Sequence[Path | str], column: str, *, storage: Storage | None = None) -> Codes:
    """The codes of a column of obs, for all cells of the h5ad files, in the same order as `open_h5ad` reads the cells.

    `values` are all categories of a categorical column, including categories of no cell, or the distinct values of any
    other column. paths: of files, or URLs of objects; storage: for URLs, see `open_h5ad`. Raises ValueError if a file
    is damaged or lacks the column, and OSError if a file cannot be read; both name the file.
    """
    paths = several(paths)
    if storage and not all_urls(paths):
        raise ValueError("storage is for URLs, and the paths are of files")
    columns = _of_objects(map(str, paths), column, storage or {}) if all_urls(paths) else _of_files(paths, column)
    places: dict[str, int] = {}
    parts = []
    for codes, values in columns:
        for value in values:
            places.setdefault(value, len(places))
        indices = np.array([places[value] for value in values] + [MISSING], np.int64)
        parts.append(indices[codes])  # code -1 is the last entry, MISSING
    return Codes(np.concatenate(parts), list(places))


def _of_files(paths: Sequence[Path | str], column: str) -> Iterator[tuple[np.ndarray, list[str]]]:
    for path in paths:
        with Files() as files:
            file = files.hdf5(files.open(path))
            try:
                with describing(path):
                    yield _column(str(path), file, column)
            finally:
                files.close()


def _of_objects(urls: Iterable[str], column: str, storage: Storage) -> list[tuple[np.ndarray, list[str]]]:
    metadata = [Metadata(each) for each in open_objects(list(urls), storage)]

    def read(i: int) -> tuple[np.ndarray, list[str]]:
        url = metadata[i].source.url
        with describing(url), h5py.File(metadata[i], "r") as file:
            return _column(url, file, column)

    with ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="metadata") as pool:
        return in_rounds(metadata, read, pool)


def _column(path: str, file: h5py.File, name: str) -> tuple[np.ndarray, list[str]]:
    """(codes, values) of a column of one file. codes: int64 (cells,), validated to be -1 to len(values) - 1."""
    obs = file.get("obs")
    if not isinstance(obs, h5py.Group) or name not in obs:
        columns = sorted(obs) if isinstance(obs, h5py.Group) else []
        raise ValueError(f"{path} has no column {name!r} in obs; it has: {', '.join(columns) or 'none'}")
    column: Any = obs[name]
    if isinstance(column, h5py.Group) and "categories" in column:
        codes, values = column["codes"][:], _texts(column["categories"])
        if codes.ndim != 1 or codes.dtype.kind not in "iu":
            raise ValueError(f"{path}: the codes of {name!r} are no whole numbers")
        if len(codes) and not MISSING <= int(codes.min()) <= int(codes.max()) < len(values):
            raise ValueError(f"{path}: the codes of {name!r} reach beyond its {len(values)} categories")
        return codes.astype(np.int64), values
    texts = np.array(_texts(column), object)
    if isinstance(column, h5py.Group) and "mask" in column:
        texts[column["mask"][:].astype(bool)] = None
    is_given = texts != None  # noqa: E711 - elementwise
    distinct, inverse = np.unique(texts[is_given].astype(str), return_inverse=True)
    codes = np.full(len(texts), MISSING, np.int64)
    codes[is_given] = inverse
    return codes, distinct.tolist()


def _texts(element: Any) -> list[str]:
    """The values of an array as text. A nullable array is a group of values and mask; its mask is ignored here."""
    values = element["values"] if isinstance(element, h5py.Group) else element
    return [value.decode() if isinstance(value, bytes) else str(value) for value in values[:].tolist()]
