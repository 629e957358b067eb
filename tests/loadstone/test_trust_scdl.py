"""Malformed SCDL stores: for each defect one error that names the file."""

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import anndata as ad
import numpy as np
import pytest

from loadstone.formats import scdl
from loadstone.reading.matrix import open_matrix
from tests.loadstone.trust import GENES, OUTPUTS, X, read_all


def read_scdl(folder: Path, output: str) -> list[np.ndarray]:
    return read_all(lambda: open_matrix(partial(scdl.open_parts, folder), GENES, output=output, threads=2))


def test_arrays_of_scdl(tmp_path: Path) -> None:
    """Cut off, longer, or with wrong row starts or gene indices."""
    pytest.importorskip("bionemo.scdl")
    from bionemo.scdl.io.single_cell_memmap_dataset import SingleCellMemMapDataset

    ad.AnnData(X).write_h5ad(tmp_path / "a.h5ad")
    SingleCellMemMapDataset(str(tmp_path / "whole"), str(tmp_path / "a.h5ad"), use_X_not_raw=True)

    def change(file: str, dtype: str, edit: Callable[[np.ndarray], np.ndarray]) -> Path:
        folder = tmp_path / "changed"
        shutil.copytree(tmp_path / "whole", folder, dirs_exist_ok=True)
        edit(np.fromfile(folder / file, dtype)).tofile(folder / file)
        return folder

    def put(at: int, value: int) -> Callable[[np.ndarray], np.ndarray]:
        return lambda v: np.where(np.arange(len(v)) == at, value, v).astype(v.dtype)

    from bionemo.scdl.schema.header import SCDLHeader

    header = SCDLHeader.load(str(tmp_path / "whole" / "header.sch"))
    types = {a.name: a.dtype.numpy_dtype_string for a in header.arrays}
    for file, dtype, of, message in (
        ("row_ptr.npy", types["ROWPTR"], lambda v: v[:30], "row_ptr.npy has .* bytes, but 61 x"),
        ("data.npy", types["DATA"], lambda v: np.append(v, v[-1:]), "data.npy has .* bytes"),
        ("col_ptr.npy", types["COLPTR"], lambda v: v[:-1], "col_ptr.npy has .* bytes"),
        ("row_ptr.npy", types["ROWPTR"], put(0, 5), "row_ptr.npy begins with 5"),
        ("row_ptr.npy", types["ROWPTR"], put(60, 2_000), "row_ptr.npy ends with 2000"),
        ("col_ptr.npy", types["COLPTR"], put(40, GENES), f"col_ptr.npy, element 40, of row \\d+, is gene {GENES}"),
    ):
        folder = change(file, dtype, of)
        for output in OUTPUTS:
            with pytest.raises(ValueError, match=message):
                read_scdl(folder, output)
