"""Makes a `Dataset` of paths: finds h5ad files, reads their metadata, and checks that they form one table of cells."""

import glob
import hashlib
import os
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import h5py

from harness.data.dataset import Dataset
from harness.errors import UserError, unknown
from loadstone import open_h5ad
from loadstone.formats.genes import check_same
from loadstone.reading.disk import MEMORY
from loadstone.remote.folder import RemoteFolder
from loadstone.remote.metadata import Metadata
from loadstone.remote.objects import open_objects
from loadstone.remote.urls import parent

LABEL_VALUES = range(2, 10_001)
"""A categorical column is a label if its number of distinct values is in this range."""


def find_files(location: str) -> list[Path]:
    """The h5ad files that a path, a folder or a glob names, in natural order (`natural`) of their names.

    Raises UserError if there are none.
    """
    path = Path(location).expanduser()
    if path.is_dir():
        paths = [p for p in path.iterdir() if p.suffix == ".h5ad"]
        if not paths:
            raise UserError(f"The folder {location} holds no .h5ad file.")
    elif path.exists():
        paths = [path]
    else:
        paths = [Path(p) for p in glob.glob(str(path), recursive=True)]
        if not paths:
            raise UserError(f"There is no file, folder or match for {location}.")
    return sorted((p.resolve() for p in paths), key=natural)


def find_urls(location: str) -> list[str]:
    """The h5ad objects that a URL names: one object, the folder that holds them, or a pattern with * in the last part.

    They are in natural order of their names. Raises UserError if there are none, or if they cannot be listed.
    """
    if location.endswith(".h5ad") and "*" not in location:
        return [location]
    try:
        folder, pattern = parent(location) if "*" in location else (location.rstrip("/"), "*.h5ad")
        names = [name for name in RemoteFolder(folder, {}).names() if fnmatch(name, pattern)]
    except (OSError, ValueError, ImportError) as error:
        raise UserError(f"{error}.") from error
    if not names:
        raise UserError(f"There is no object {pattern} in {folder}.")
    return [f"{folder}/{name}" for name in sorted(names, key=lambda name: natural(Path(name)))]


def inspect_urls(name: str, urls: Sequence[str], labels: Sequence[str] | None) -> Dataset:
    """Does the same as `inspect` for objects, of one folder."""
    folder = parent(urls[0])[0]
    try:
        sources = open_objects(urls, {})
        with closing(open_h5ad(list(urls), disk=MEMORY)):  # whether they have the same genes, and are sound
            pass
    except (OSError, ValueError, ImportError) as error:
        raise UserError(f"{error}.") from error
    paths = [Path("/") / parent(url)[1] for url in urls]
    files = []
    for path, source in zip(paths, sources, strict=True):
        with h5py.File(Metadata(source, waits=True), "r") as file:
            facts = _metadata_of(path, file)
        files.append(facts | {"fingerprint": (source.size, source.etag)})
    return replace(_dataset(name, paths, files, labels), bucket=folder, served=Path("/"))


def natural(path: Path) -> list[tuple[int, int | str]]:
    """A sort key for natural order: plate2 comes before plate10."""
    digits = "".join(c if c.isdigit() else f" {c} " for c in path.name).split()
    return [(0, int(part)) if part.isdigit() else (1, part) for part in digits]


def inspect(name: str, paths: Sequence[Path], labels: Sequence[str] | None) -> Dataset:
    """The data set that the files form. Reads their metadata, but no cells, and checks that they fit together.

    labels: the obs columns to use as labels. None selects all categorical columns that are in every file and have 2 to
    10,000 distinct values in all files together. Raises UserError for files that cannot be benchmarked and
    for unknown labels.
    """
    files = [_metadata(path) for path in paths]
    first = files[0]
    for path, file in zip(paths, files, strict=True):
        if file["x_format"] != first["x_format"]:
            raise UserError(f"{path.name} holds X as {file['x_format']}, {paths[0].name} as {first['x_format']}.")
        if file["n_genes"] != first["n_genes"]:
            raise UserError(
                f"{path.name} and {paths[0].name} differ in their genes: {file['n_genes']:,} and {first['n_genes']:,}."
            )
    _check_genes(paths)
    return _dataset(name, paths, files, labels)


def _dataset(
    name: str, paths: Sequence[Path], files: Sequence[dict[str, Any]], labels: Sequence[str] | None
) -> Dataset:
    """The data set of files that fit together. files: their metadata, as of `_metadata_of`."""
    first = files[0]
    if not sum(file["n_cells"] for file in files):
        raise UserError(f"{name} has no cells.")
    columns = [c for c in first["categoricals"] if all(c in file["categoricals"] for file in files)]
    for label in labels or ():
        if label not in columns:
            raise unknown("label", label, columns)
    if labels is None:
        values = {c: set().union(*(file["categoricals"][c] for file in files)) for c in columns}
        labels = [c for c in columns if len(values[c]) in LABEL_VALUES]
    digest = hashlib.sha256(repr([file["fingerprint"] for file in files]).encode())
    return Dataset(
        name=name,
        paths=tuple(paths),
        lengths=tuple(file["n_cells"] for file in files),
        n_genes=first["n_genes"],
        nnz=sum(file["nnz"] for file in files),
        x_format=first["x_format"],
        fingerprint=digest.hexdigest()[:16],
        label_names=tuple(labels),
    )


def _metadata(path: Path) -> dict[str, Any]:
    """The metadata of one file that `inspect` needs, by name. Raises UserError if it is not a sound h5ad file."""
    if not os.access(path, os.R_OK):
        raise UserError(f"{path} cannot be read: permission denied.")
    if not path.is_file() or not h5py.is_hdf5(path):
        raise UserError(f"{path} is not an HDF5 file, so it is not an h5ad file.")
    try:
        with h5py.File(path) as file:
            facts = _metadata_of(path, file)
        return facts | {"fingerprint": (*facts["fingerprint"], _sampled_digest(path))}
    except (OSError, RuntimeError, KeyError, AttributeError, TypeError, ValueError) as error:
        # h5py and anndata raise any of these for an inconsistent file.
        fault = "is truncated" if "truncated" in str(error) else "is damaged, or no h5ad"
        raise UserError(f"{path} {fault}: {error}.") from error


def _metadata_of(path: Path, file: h5py.File) -> dict[str, Any]:
    if "X" not in file:
        raise UserError(f"{path} has no X.")
    x = file["X"]
    encoding = _text(x.attrs.get("encoding-type", x.attrs.get("h5sparse_format", "array")))
    if "csc" in encoding:
        raise UserError(
            f"{path} stores X as CSC, which does not allow reading single cells; convert it once: "
            "a = anndata.read_h5ad(path); a.X = a.X.tocsr(); a.write_h5ad(new_path, compression='gzip')."
        )
    if isinstance(x, h5py.Group):
        shape = x.attrs.get("shape", x.attrs.get("h5sparse_shape"))
        missing = [part for part in ("data", "indices", "indptr") if part not in x]
        if shape is None or missing:
            raise UserError(f"{path}: X is not a CSR matrix ({', '.join(missing) or 'shape'} missing).")
        n_cells, n_genes = (int(n) for n in shape)
        nnz, x_format, sampled = x["data"].shape[0], "csr", x["data"]
        if x["indptr"].shape != (n_cells + 1,) or x["indices"].shape != (nnz,):
            raise UserError(f"{path}: X's data, indices and indptr do not fit its shape {n_cells} x {n_genes}.")
    elif x.ndim == 2:
        n_cells, n_genes = x.shape
        nnz, x_format, sampled = n_cells * n_genes, "dense", x
    else:
        raise UserError(f"{path}: X has {x.ndim} dimensions, not 2.")
    categoricals = {}
    if "obs" in file:
        for column in map(_text, file["obs"].attrs.get("column-order", ())):
            element = file["obs"][column]
            if isinstance(element, h5py.Group) and _text(element.attrs.get("encoding-type", "")) == "categorical":
                # One value more than a label may have is enough to reject a column, such as one of barcodes.
                categoricals[column] = set(_strings(element["categories"], LABEL_VALUES.stop))
    return {
        "n_cells": n_cells,
        "n_genes": n_genes,
        "nnz": nnz,
        "x_format": x_format,
        "categoricals": categoricals,
        "fingerprint": (n_cells, n_genes, nnz, str(sampled.dtype)),
    }


def _check_genes(paths: Sequence[Path]) -> None:
    """UserError unless all files have the same gene names in the same order."""
    with ExitStack() as files:
        try:
            check_same([(str(path), files.enter_context(h5py.File(path))) for path in paths], "X")
        except (OSError, ValueError) as error:
            raise UserError(f"{error}.") from error


def _text(value: str | bytes) -> str:
    """The text of a string attribute, which h5py may return as bytes."""
    return value.decode() if isinstance(value, bytes) else str(value)


def _strings(element: h5py.Dataset | h5py.Group, count: int | None = None) -> list[bytes]:
    """The first `count` values (None: all) of an array of names, as UTF-8 bytes.

    element: a data set or, if the array is nullable, the group of its values and its mask.
    """
    values = element["values"] if isinstance(element, h5py.Group) else element
    names = values[:count].tolist()
    return names if h5py.check_string_dtype(values.dtype) else [str(name).encode() for name in names]


def _sampled_digest(path: Path, pieces: int = 16, piece_bytes: int = 4096) -> str:
    """The SHA-256, in hex, of the file's size and of `pieces` pieces spread evenly over the file.

    The whole file is not hashed, because a data set may have 314 GB.
    """
    size = path.stat().st_size
    digest = hashlib.sha256(str(size).encode())
    with path.open("rb") as file:
        for i in range(pieces):
            file.seek(max(0, (size - piece_bytes) * i // (pieces - 1)))
            digest.update(file.read(piece_bytes))
    return digest.hexdigest()
