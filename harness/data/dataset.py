"""A data set: h5ad files read as one long table of cells, and the labels of its rows."""

import glob
import hashlib
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from harness.errors import UserError, unknown

LABEL_VALUES = range(2, 10_001)
"""How many distinct values make a categorical column a label."""


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """h5ad files in the order of their rows; a row id counts cells from the first file's first.

    lengths: cells per file; x_format: "csr" or "dense"; fingerprint: 16 hex digits of the content's samples.
    """

    name: str
    paths: tuple[Path, ...]
    lengths: tuple[int, ...]
    n_genes: int
    nnz: int
    x_format: str
    fingerprint: str
    label_names: tuple[str, ...]

    @property
    def n_cells(self) -> int:
        return sum(self.lengths)

    @cached_property
    def offsets(self) -> np.ndarray:
        """int64, (files + 1,): the row id of each file's first cell, and the number of cells."""
        return np.concatenate([[0], np.cumsum(self.lengths, dtype=np.int64)])

    @property
    def size_bytes(self) -> int:
        return sum(path.stat().st_size for path in self.paths)

    def labels(self, column: str) -> np.ndarray:
        """int32 codes by row id, (n_cells,); -1 where the label is missing. Files may differ in categories."""
        from anndata.io import read_elem

        codes, seen = [], {}
        for path in self.paths:
            with h5py.File(path) as file:
                values = read_elem(file["obs"][column])
            numbers = np.array([seen.setdefault(str(v), len(seen)) for v in values.categories], np.int32)
            codes.append(np.append(numbers, np.int32(-1))[values.codes])
        return np.concatenate(codes)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"paths": [str(path) for path in self.paths]}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Dataset":
        tuples = {key: tuple(values[key]) for key in ("lengths", "label_names")}
        return cls(**values | tuples | {"paths": tuple(Path(path) for path in values["paths"])})


def find_files(where: str) -> list[Path]:
    """The h5ad files that a path, a folder or a glob names, sorted by name with numbers in their order."""
    path = Path(where).expanduser()
    if path.is_dir():
        found = [p for p in path.iterdir() if p.suffix == ".h5ad"]
        if not found:
            raise UserError(f"The folder {where} holds no .h5ad file.")
    elif path.exists():
        found = [path]
    else:
        found = [Path(p) for p in glob.glob(str(path), recursive=True)]
        if not found:
            raise UserError(f"There is no file, folder or match for {where}.")
    return sorted((p.resolve() for p in found), key=natural)


def natural(path: Path) -> list[tuple[int, int | str]]:
    """A sort key that puts plate2 before plate10."""
    digits = "".join(c if c.isdigit() else f" {c} " for c in path.name).split()
    return [(0, int(part)) if part.isdigit() else (1, part) for part in digits]


def inspect(name: str, paths: Sequence[Path], labels: Sequence[str] | None) -> Dataset:
    """Opens each file, checks that together they can be benchmarked, and reads no cell.

    `labels` None finds the label columns: categoricals of 2 to 10,000 values present in every file.
    """
    files = [_look_at(path) for path in paths]
    first = files[0]
    for path, file in zip(paths, files, strict=True):
        if file["genes"] != first["genes"]:
            raise UserError(f"{path.name} and {paths[0].name} differ in their genes; a data set has one gene table.")
        if file["x_format"] != first["x_format"]:
            raise UserError(f"{path.name} holds X as {file['x_format']}, {paths[0].name} as {first['x_format']}.")
    if not sum(file["n_cells"] for file in files):
        raise UserError(f"{name} has no cells.")
    found = [c for c in first["categoricals"] if all(c in file["categoricals"] for file in files)]
    for label in labels or ():
        if label not in found:
            raise unknown("label", label, found)
    if labels is None:
        values = {c: set().union(*(file["categoricals"][c] for file in files)) for c in found}
        labels = [c for c in found if len(values[c]) in LABEL_VALUES]
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


def _look_at(path: Path) -> dict[str, Any]:
    if not os.access(path, os.R_OK):
        raise UserError(f"{path} cannot be read: permission denied.")
    if not path.is_file() or not h5py.is_hdf5(path):
        raise UserError(f"{path} is not an HDF5 file, so not an h5ad.")
    try:
        with h5py.File(path) as file:
            return _look_into(path, file)
    except (OSError, RuntimeError, KeyError, AttributeError, TypeError, ValueError) as error:
        # h5py and anndata raise any of these for a file whose parts do not fit together.
        what = "is truncated" if "truncated" in str(error) else "is damaged, or no h5ad"
        raise UserError(f"{path} {what}: {error}.") from error


def _look_into(path: Path, file: h5py.File) -> dict[str, Any]:
    if "X" not in file:
        raise UserError(f"{path} has no X.")
    x = file["X"]
    encoding = _text(x.attrs.get("encoding-type", x.attrs.get("h5sparse_format", "array")))
    if "csc" in encoding:
        raise UserError(
            f"{path} holds X as CSC, from which cells cannot be read one by one; convert it once: "
            "a = anndata.read_h5ad(path); a.X = a.X.tocsr(); a.write_h5ad(new_path, compression='gzip')."
        )
    if isinstance(x, h5py.Group):
        shape = x.attrs.get("shape", x.attrs.get("h5sparse_shape"))
        missing = [part for part in ("data", "indices", "indptr") if part not in x]
        if shape is None or missing:
            raise UserError(f"{path}: X is no CSR matrix ({', '.join(missing) or 'shape'} missing).")
        n_cells, n_genes = (int(n) for n in shape)
        nnz, x_format, sampled = x["data"].shape[0], "csr", x["data"]
        if x["indptr"].shape != (n_cells + 1,) or x["indices"].shape != (nnz,):
            raise UserError(f"{path}: X's data, indices and indptr do not fit its shape {n_cells} x {n_genes}.")
    elif x.ndim == 2:
        n_cells, n_genes = x.shape
        nnz, x_format, sampled = n_cells * n_genes, "dense", x
    else:
        raise UserError(f"{path}: X has {x.ndim} dimensions, not 2.")
    genes, categoricals = hashlib.sha256(str(n_genes).encode()), {}
    if "var" in file and "_index" in file["var"].attrs:
        genes.update(b"\0".join(_strings(file["var"][_text(file["var"].attrs["_index"])])))
    if "obs" in file:
        for column in map(_text, file["obs"].attrs.get("column-order", ())):
            element = file["obs"][column]
            if isinstance(element, h5py.Group) and _text(element.attrs.get("encoding-type", "")) == "categorical":
                # One more than a label may have is enough to see that this is none: barcodes, say.
                categoricals[column] = set(_strings(element["categories"], LABEL_VALUES.stop))
    return {
        "n_cells": n_cells,
        "n_genes": n_genes,
        "nnz": nnz,
        "x_format": x_format,
        "genes": genes.hexdigest(),
        "categoricals": categoricals,
        "fingerprint": (n_cells, n_genes, nnz, str(sampled.dtype), _sample(path)),
    }


def _text(value: str | bytes) -> str:
    """An attribute's text, whichever way it was written."""
    return value.decode() if isinstance(value, bytes) else str(value)


def _strings(element: h5py.Dataset | h5py.Group, count: int | None = None) -> list[bytes]:
    """The first values of an array of names, as UTF-8; a nullable one is a group of its values and a mask."""
    values = element["values"] if isinstance(element, h5py.Group) else element
    found = values[:count].tolist()
    return found if h5py.check_string_dtype(values.dtype) else [str(value).encode() for value in found]


def _sample(path: Path, pieces: int = 16, piece_bytes: int = 4096) -> str:
    """A digest of the file's size and of pieces spread over it: 314 GB need not be read to be recognised."""
    size = path.stat().st_size
    digest = hashlib.sha256(str(size).encode())
    with path.open("rb") as file:
        for i in range(pieces):
            file.seek(max(0, (size - piece_bytes) * i // (pieces - 1)))
            digest.update(file.read(piece_bytes))
    return digest.hexdigest()
