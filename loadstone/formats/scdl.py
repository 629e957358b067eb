"""The memory-mapped CSR arrays of BioNeMo-SCDL."""

from pathlib import Path

import numpy as np

from loadstone.reading import validate
from loadstone.reading.arrays import Plain
from loadstone.reading.files import Files, check_regular, describing
from loadstone.reading.matrix import Part

FILES = {"ROWPTR": "row_ptr.npy", "COLPTR": "col_ptr.npy", "DATA": "data.npy"}


def open_parts(folder: Path, files: Files) -> list[Part]:
    """Opens the matrix of the SCDL store in `folder`. Returns one part.

    The arrays are uncompressed; the file header.sch has their dtypes and lengths. OSError if a file cannot be read.
    ValueError if the header does not match the files, the gene tables differ, or the row starts are invalid.
    """
    from bionemo.scdl.schema.header import SCDLHeader

    with describing(folder / "header.sch"):
        check_regular(folder / "header.sch")
        header = SCDLHeader.load(str(folder / "header.sch"))
        infos = {array.name: array for array in header.arrays}
        types, lengths = {}, {}
        for name in FILES:
            if name not in infos:
                raise ValueError(f"{folder / 'header.sch'} does not say what {FILES[name]} holds")
            types[name], lengths[name] = np.dtype(infos[name].dtype.numpy_dtype_string), infos[name].length
    tables = sorted((folder / "var_features").glob("dataframe_*.parquet"))
    with describing(folder / "var_features"):
        _check_genes(tables)
    fds = {}
    for name, file in FILES.items():
        path, expected = folder / file, lengths[name] * types[name].itemsize
        kinds = validate.NUMBERS if name == "DATA" else "iu"
        if types[name].kind not in kinds:
            raise ValueError(f"{path} should hold {types[name]}")
        fds[name] = files.open(path)
        if files.size(fds[name]) != expected:
            raise ValueError(
                f"{path} has {files.size(fds[name]):,} bytes, but {lengths[name]:,} x {types[name]} are {expected:,}"
            )
    if lengths["DATA"] != lengths["COLPTR"]:
        raise ValueError(f"{folder}: DATA has {lengths['DATA']:,} elements, COLPTR has {lengths['COLPTR']:,}")
    path = folder / FILES["ROWPTR"]
    starts = validate.row_starts(str(path), np.fromfile(path, types["ROWPTR"]), lengths["DATA"])

    def array(name: str) -> Plain:
        edges, file_bytes = np.array([0, lengths[name]]), files.size(fds[name])
        return Plain(str(folder / FILES[name]), fds[name], types[name], edges, np.array([0]), file_bytes)

    return [Part(starts, array("DATA"), array("COLPTR"))]


def _check_genes(tables: list[Path]) -> None:
    """ValueError if the gene tables of the store differ. tables: the paths of their parquet files."""
    import pyarrow.parquet

    first = None
    for path in tables:
        table = pyarrow.parquet.read_table(path)
        first = first or (path, table)
        if not table.equals(first[1]):
            raise ValueError(f"{first[0]} and {path} differ: the store's rows have different genes")
