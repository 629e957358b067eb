"""The readers of a store: ours, and as the reference the format's own library with all its checks."""

import json
import os
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from tests.fuzz.stores import GENES, SCDL_FILES, Form


def open_ours(form: Form, folder: Path, output: str, threads: int):
    """The store as a source for `BlockLoader`."""
    from loadstone import open_h5ad
    from loadstone.formats import arrow, scdl, zarr_group
    from loadstone.reading.matrix import open_matrix

    paths = [folder / path for path in form.paths]
    if form.group in ("h5ad", "dense"):
        return open_h5ad(paths, matrix=form.matrix, output=output, threads=threads)
    parts = {
        "zarr": lambda: partial(zarr_group.open_parts, paths),
        "arrow": lambda: partial(arrow.open_parts, folder),
        "scdl": lambda: partial(scdl.open_parts, folder),
    }
    return open_matrix(parts[form.group](), GENES, output=output, threads=threads)


def reference(form: Form, folder: Path) -> sp.csr_matrix | sp.csr_array:
    """All rows, float32, read by the format's own library. Any exception means that the store is not valid."""
    parts = {"h5ad": _h5ad, "dense": _h5ad, "zarr": _zarr, "arrow": _arrow, "scdl": _scdl}[form.group](form, folder)
    parts = [_checked(part) for part in parts]
    if form.group not in ("h5ad", "dense"):
        parts = [_of_all_genes(part) for part in parts]
    if len({part.shape[1] for part in parts}) > 1:
        raise ValueError("the files differ in their number of genes")
    return sp.vstack(parts, format="csr") if len(parts) > 1 else parts[0]


def _checked(x: object) -> sp.csr_matrix | sp.csr_array:
    """The matrix as float32 CSR, after a full check; ValueError if it is not valid."""
    if isinstance(x, np.ndarray):
        x = sp.csr_matrix(np.atleast_2d(x) if x.ndim == 2 else _refuse(f"it has {x.ndim} dimensions"))
    if not sp.issparse(x) or x.format != "csr":
        raise ValueError(f"it is {type(x).__name__}, not CSR")
    if x.data.dtype.kind not in "iufb":
        raise ValueError(f"it holds {x.data.dtype}")
    x.check_format(full_check=True)
    return x.astype(np.float32)


def _refuse(why: str) -> np.ndarray:
    raise ValueError(why)


def _of_all_genes(x: sp.csr_matrix | sp.csr_array) -> sp.csr_matrix:
    """The matrix with GENES columns: our reader is given this number, too, instead of the number in the store."""
    if x.nnz and x.indices.max() >= GENES:
        raise ValueError("a gene is out of range")
    return sp.csr_matrix((x.data, x.indices, x.indptr), (x.shape[0], GENES))


def _h5ad(form: Form, folder: Path) -> list:
    import h5py

    matrices, names = [], []
    for path in form.paths:
        with h5py.File(folder / path) as file:
            # Names first, as our reader does: libhdf5 may hang where either is damaged.
            names.append(_names(file, "raw/var" if form.matrix == "raw/X" else "var"))
            matrices.append(_element(file[form.matrix]))
    _check_same(names)
    return matrices


def _zarr(form: Form, folder: Path) -> list:
    import zarr

    groups = [zarr.open_group(folder / path, mode="r") for path in form.paths]
    matrices = [_element(group["X"]) for group in groups]
    _check_same([_names(group, "var") for group in groups])
    return matrices


def _names(file: Any, table: str) -> list[str] | None:
    """The gene names in the var table; None if there is no table.

    If anndata cannot read the table, for instance because of damaged attributes, its column `_index` is read.
    """
    import anndata as ad

    if table not in file:
        return None
    try:
        return list(ad.io.read_elem(file[table]).index.astype(str))
    except Exception:
        names = [each.decode() if isinstance(each, bytes) else str(each) for each in file[table]["_index"][:]]
        return names


def _check_same(names: list) -> None:
    if any(each != names[0] for each in names):
        raise ValueError("the files differ in their genes")


def _element(x: Any) -> Any:
    """The matrix as anndata reads it, or as h5py or zarr read it if anndata fails, as at damaged attributes."""
    import anndata as ad

    try:
        return ad.io.read_elem(x)
    except Exception:
        if not hasattr(x, "keys"):
            return x[:]
        return sp.csr_matrix(tuple(x[name][:] for name in ("data", "indices", "indptr")), tuple(x.attrs["shape"]))


def _arrow(form: Form, folder: Path) -> list:
    import pyarrow as pa

    matrices = []
    for entry in json.loads((folder / "state.json").read_text())["_data_files"]:
        path = folder / entry["filename"]
        # Paths are compared without following links: a file of the store may be a link to another disk.
        if Path(os.path.abspath(path)).parent != Path(os.path.abspath(folder)):
            raise ValueError("a file lies outside the store")
        # Not memory-mapped: a mapped file that is truncated ends the process.
        with pa.ipc.open_stream(pa.py_buffer(path.read_bytes())) as stream:
            for batch in stream:
                batch.validate(full=True)
                lists = {name: batch.column(name) for name in ("genes", "expressions")}
                if any(each.null_count or each.flatten().null_count for each in lists.values()):
                    raise ValueError("a list or a value is null")
                lengths = [np.diff(each.offsets.to_numpy()) for each in lists.values()]
                if not np.array_equal(*lengths):
                    raise ValueError("lists differ in length")
                genes, values = (each.flatten().to_numpy(zero_copy_only=False) for each in lists.values())
                if genes.dtype.kind not in "iu" or (len(genes) and not 0 <= genes.min() <= genes.max() < GENES):
                    raise ValueError("a gene is out of range")
                indptr = np.cumsum([0, *lengths[0]])
                matrices.append(sp.csr_matrix((values, genes.astype(np.int64), indptr), (len(batch), GENES)))
    return matrices


def _scdl(form: Form, folder: Path) -> list:
    from bionemo.scdl.schema.header import SCDLHeader

    infos = {info.name: info for info in SCDLHeader.load(str(folder / "header.sch")).arrays}
    arrays = {}
    for name, file in SCDL_FILES.items():
        arrays[name] = np.fromfile(folder / file, infos[name].dtype.numpy_dtype_string)
        if len(arrays[name]) != infos[name].length:
            raise ValueError(f"{file} does not have the length that the header states")
        if (folder / file).stat().st_size != arrays[name].nbytes:
            raise ValueError(f"{file} ends within a number")
    if any(arrays[name].dtype.kind not in "iu" for name in ("ROWPTR", "COLPTR")):
        raise ValueError("row_ptr or col_ptr do not hold whole numbers")
    indptr, indices = (arrays[name].astype(np.int64) for name in ("ROWPTR", "COLPTR"))
    return [sp.csr_matrix((arrays["DATA"], indices, indptr), (len(indptr) - 1, GENES))]
