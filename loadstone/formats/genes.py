"""Gene names: files that are read as one matrix must have the same genes in the same order."""

from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import Any

import numpy as np


def name_column(root: Any, matrix: str) -> Any:
    """The array of gene names for a matrix in an open h5ad or zarr file; None if the file has none.

    Names may repeat, as they do in files of 10x Genomics.
    """
    table = "raw/var" if matrix.startswith("raw/") else "var"
    if table not in root:
        return None
    var = root[table]
    if not hasattr(var, "keys"):  # a table of records, as anndata wrote before 0.7
        return var.fields("index") if var.dtype.names and "index" in var.dtype.names else None
    index = var.attrs.get("_index", "_index")
    index = index.decode() if isinstance(index, bytes) else str(index)
    if index not in var:
        return None
    column = var[index]
    return column["values"] if hasattr(column, "keys") else column  # a nullable array is a group of two


def check_count(name: str, column: Any, n_genes: int) -> None:
    """ValueError if the number of gene names is not the number of columns of the matrix."""
    if column is None:
        return
    n = column.shape[0] if hasattr(column, "shape") else len(column)
    if n != n_genes:
        raise ValueError(f"{name} names {n:,} genes, but its matrix has {n_genes:,}")


def check_same(files: Iterable[tuple[str, Callable[[], Any]]]) -> None:
    """ValueError if two files have different gene names; names both files and the first difference.

    files: for each, its path and a function that reads its gene names, or returns None if it has none. The names are
    compared by a hash, and read again only if the hashes differ.
    """
    first = None
    for name, read in files:
        digest = _digest(read())
        if first is None:
            first = name, read, digest
        elif digest != first[2]:
            raise ValueError(_difference(*first[:2], name, read))


def _texts(names: Any) -> list[bytes] | None:
    if names is None:
        return None
    return [name if isinstance(name, bytes) else str(name).encode() for name in np.asarray(names).tolist()]


def _digest(names: Any) -> bytes:
    texts = _texts(names)
    if texts is None:
        return b""
    digest = sha256(np.array([len(text) for text in texts], np.int64).tobytes())
    digest.update(b"".join(texts))
    return digest.digest()


def _difference(name_a: str, read_a: Callable[[], Any], name_b: str, read_b: Callable[[], Any]) -> str:
    genes_a, genes_b = _texts(read_a()), _texts(read_b())
    if genes_a is None or genes_b is None:
        without = name_a if genes_a is None else name_b
        return f"{name_a} and {name_b} cannot be read as one matrix: {without} does not name its genes"
    for i, (a, b) in enumerate(zip(genes_a, genes_b, strict=False)):
        if a != b:
            one, other = (text.decode(errors="replace") for text in (a, b))
            what = f"gene {i} is {one!r} in the one and {other!r} in the other"
            return f"{name_a} and {name_b} differ in their genes: {what}"
    return f"{name_a} and {name_b} differ in their genes: {len(genes_a):,} and {len(genes_b):,}"
