"""The memory-mapped CSR arrays of BioNeMo-SCDL."""

from contextlib import ExitStack
from pathlib import Path

import numpy as np

from loaders.native.arrays import Plain, open_file
from loaders.native.matrix import Part

FILES = {"ROWPTR": "row_ptr.npy", "COLPTR": "col_ptr.npy", "DATA": "data.npy"}


def open_parts(folder: Path, opened: ExitStack) -> list[Part]:
    """The store in `folder`: files of bare numbers, whose types are in its header."""
    from bionemo.scdl.schema.header import SCDLHeader

    header = SCDLHeader.load(str(folder / "header.sch"))
    types = {array.name: np.dtype(array.dtype.numpy_dtype_string) for array in header.arrays}
    indptr = np.fromfile(folder / FILES["ROWPTR"], types["ROWPTR"]).astype(np.int64)

    def array(name: str) -> Plain:
        path = folder / FILES[name]
        return Plain(str(path), open_file(path, opened), types[name], np.array([0, indptr[-1]]), np.array([0]))

    return [Part(indptr, array("DATA"), array("COLPTR"))]
