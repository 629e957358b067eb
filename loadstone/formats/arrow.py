"""A matrix in the Arrow files of a Hugging Face dataset: for each cell, a list of genes and a list of expressions."""

import json
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from loadstone.reading.arrays import Plain
from loadstone.reading.files import Files, describing, open_regular
from loadstone.reading.matrix import Part
from loadstone.reading.row_starts import RowStarts
from loadstone.reading.validate import NUMBERS

COLUMNS = {"expressions": NUMBERS, "genes": "iu"}  # for each column, the kinds of NumPy dtypes that it may hold


def open_parts(folder: Path, files: Files) -> list[Part]:
    """Opens the Arrow files of the dataset in `folder`: one part per file, in the order of state.json.

    folder: as written by `save_to_disk` of Hugging Face datasets. The dataset must have the columns "genes" and
    "expressions". OSError if a file cannot be read. ValueError if a file is damaged or compressed, or the files have
    different schemas; gene names, if there are any, are part of the schema.
    """
    with describing(folder / "state.json"):
        with open(open_regular(folder / "state.json")) as file:
            state = json.load(file)
        names = [PurePath(file["filename"]) for file in state["_data_files"]]
        for name in names:
            if name.is_absolute() or ".." in name.parts:
                raise ValueError(f"{folder / 'state.json'} names a file outside of its folder: {name}")
        if not names:
            raise ValueError(f"{folder / 'state.json'} names no files")
    parts, first = [], None
    for name in names:
        path = folder / name
        with describing(path):
            schema, part = _part(path, files)
            first = first or (path, schema)
            if not schema.equals(first[1], check_metadata=True):
                raise ValueError(f"{first[0]} and {path} differ in their columns or in the metadata of these")
            parts.append(part)
    return parts


def _part(path: Path, files: Files) -> tuple[Any, Part]:
    """The schema and the rows of an Arrow stream file. Reads the offsets of the lists, but not their values."""
    import pyarrow as pa

    fd = files.open(path)
    lengths: list[np.ndarray] = []
    sizes: list[int] = []
    places: dict[str, list[int]] = {name: [] for name in COLUMNS}
    with pa.memory_map(str(path)) as file:
        n_bytes = file.size()
        base = file.read_buffer(1).address  # the address of the file's first byte in memory
        file.seek(0)
        with pa.ipc.open_stream(file) as stream:
            schema = stream.schema
            types = {name: _type(path, schema, name) for name in COLUMNS}
            for k, batch in enumerate(stream):
                offsets = {name: _offsets(path, k, name, batch.column(name)) for name in COLUMNS}
                rows = np.diff(offsets["genes"])
                if not np.array_equal(rows, np.diff(offsets["expressions"])):
                    raise ValueError(f"{path}, batch {k}: lists of genes and of expressions differ in length")
                lengths.append(rows.astype(np.int64))
                sizes.append(int(rows.sum()))
                for name in COLUMNS:
                    values = batch.column(name).values
                    width = types[name].itemsize
                    place = values.offset * width + int(offsets[name][0]) * width
                    if sizes[-1]:
                        place += values.buffers()[1].address - base
                        if not 0 <= place <= n_bytes - sizes[-1] * width:
                            raise ValueError(
                                f"{path}, batch {k}: {name} are compressed, or lie outside of the file; "
                                "save the data set without compression"
                            )
                    places[name].append(place)
    edges, indptr = np.cumsum([0, *sizes]), np.cumsum(np.concatenate([[0], *lengths]), dtype=np.int64)
    if not len(sizes):
        edges, places = np.array([0, 0]), {name: [0] for name in COLUMNS}
    arrays = [Plain(f"{path}: {name}", fd, types[name], edges, np.array(places[name]), n_bytes) for name in COLUMNS]
    return schema, Part(RowStarts.of(str(path), indptr), *arrays)


def _type(path: Path, schema, name: str) -> np.dtype:
    """The dtype of the values in a column's lists. ValueError unless these are numbers of a kind in `COLUMNS`."""
    import pyarrow as pa

    kind = schema.field(name).type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        raise ValueError(f"{path}: {name} holds {kind}, not lists of numbers")
    if not (pa.types.is_integer(kind.value_type) or pa.types.is_floating(kind.value_type)):
        raise ValueError(f"{path}: {name} holds {kind}, not lists of numbers")
    dtype = np.dtype(kind.value_type.to_pandas_dtype())
    if dtype.kind not in COLUMNS[name]:
        raise ValueError(f"{path}: {name} holds {kind}, not lists of whole numbers")
    return dtype


def _offsets(path: Path, k: int, name: str, column) -> np.ndarray:
    """The offsets of an Arrow list column, int32 or int64 (rows + 1,). List i is values[offsets[i] : offsets[i + 1]].

    ValueError if the lists are damaged or hold nulls. k: the index of the record batch, for messages.
    """
    column.validate(full=True)  # validates that the offsets do not decrease and lie within the values
    if column.null_count or column.values.null_count:
        raise ValueError(f"{path}, batch {k}: {name} holds nulls")
    width = np.int64 if str(column.type).startswith("large_list") else np.int32
    if not len(column):
        return np.zeros(1, width)
    return np.frombuffer(column.buffers()[1], width, len(column) + 1, column.offset * np.dtype(width).itemsize)
