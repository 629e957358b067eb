"""Gene names: files that are read as one matrix must have the same genes in the same order."""

from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import Any

import numpy as np

from loadstone.reading.files import describing

AtOnce = Callable[[Any], tuple[np.ndarray, np.ndarray] | None]


def name_column(root: Any, matrix: str) -> Any:
    """The array of the gene names of a matrix, not yet read from disk. None if the file has no gene names.

    root: an open h5ad file or zarr group. matrix: the path of the matrix in it, such as "raw/X". Gene names may repeat,
    as in files of 10x Genomics.
    """
    table = "raw/var" if matrix.startswith("raw/") else "var"
    if table not in root:
        return None
    var = root[table]
    if not hasattr(var, "keys"):  # a table of records, as anndata before 0.7 wrote it
        return var.fields("index") if var.dtype.names and "index" in var.dtype.names else None
    index = var.attrs.get("_index", "_index")
    index = index.decode() if isinstance(index, bytes) else str(index)
    if index not in var:
        return None
    column = var[index]
    # A nullable array is a group of its values and a mask.
    return column["values"] if hasattr(column, "keys") else column


def check_count(name: str, column: Any, n_genes: int) -> None:
    """ValueError if the number of gene names differs from n_genes, the number of columns of the matrix.

    name: the file, for the message. column: the result of `name_column`; None is valid.
    """
    if column is None:
        return
    n = column.shape[0] if hasattr(column, "shape") else len(column)
    if n != n_genes:
        raise ValueError(f"{name} names {n:,} genes, but its matrix has {n_genes:,}")


def check_same(files: Iterable[tuple[str, Any]], matrix: str) -> None:
    """ValueError if a file has other gene names than the first, or another order; names both and the first difference.

    files: for each file its path and the open h5ad file or zarr group. matrix: the path of the matrix in each file.
    """
    (first, root), *others = files
    genes = _names(first, root, matrix)
    for name, root in others:
        different = _difference(genes, _names(name, root, matrix))
        if different:
            raise ValueError(f"{first} and {name} differ in their genes: {different}")


def digest(path: str, root: Any, matrix: str, at_once: AtOnce = lambda column: None) -> str:
    """A hash of the gene names and their order, in hexadecimal; "" if the file has no gene names. See `check_same`.

    at_once: reads the lengths and the bytes of all names, see `h5ad_names.joined`; None: they are read one by one.
    """
    with describing(path):
        column = name_column(root, matrix)
        if column is None:
            return ""
        parts = at_once(column)
        if parts is None:
            encoded = [name if isinstance(name, bytes) else str(name).encode() for name in column[:].tolist()]
            lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
            parts = lengths, np.frombuffer(b"".join(encoded), np.uint8)
    lengths, names = parts  # without the lengths, "ab", "c" would be "a", "bc"
    return sha256(lengths.tobytes() + names.tobytes()).hexdigest()


def _names(path: str, root: Any, matrix: str) -> np.ndarray | None:
    with describing(path):
        column = name_column(root, matrix)
        return None if column is None else column[:]


def _difference(genes_a: Any, genes_b: Any) -> str | None:
    """The first difference between the gene names of two files, in words; None if there is none."""
    if genes_a is None and genes_b is None:
        return None
    if genes_a is None or genes_b is None:
        return f"the {'first' if genes_a is None else 'second'} does not name its genes"
    if genes_a.shape == genes_b.shape and np.array_equal(genes_a, genes_b):
        return None
    texts_a, texts_b = _texts(genes_a), _texts(genes_b)  # one array may hold bytes and the other text
    for i, (a, b) in enumerate(zip(texts_a, texts_b, strict=False)):
        if a != b:
            return f"gene {i} is {a!r} in the first and {b!r} in the second"
    return None if len(texts_a) == len(texts_b) else f"{len(texts_a):,} and {len(texts_b):,} genes"


def _texts(genes: np.ndarray) -> list[str]:
    return [gene.decode(errors="replace") if isinstance(gene, bytes) else str(gene) for gene in genes.tolist()]
