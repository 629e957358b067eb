"""Lists of genes and expressions in the Arrow files of a Hugging Face data set."""

import json
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from loaders.native.arrays import Plain, open_file
from loaders.native.matrix import Part


def open_parts(folder: Path, opened: ExitStack) -> list[Part]:
    """The files of the data set that was saved in `folder`, in their order; columns "genes" and "expressions"."""
    state = json.loads((folder / "state.json").read_text())
    return [_part(folder / file["filename"], opened) for file in state["_data_files"]]


def _part(path: Path, opened: ExitStack) -> Part:
    """Of an Arrow stream: only the lengths of its lists are read."""
    import pyarrow as pa

    fd = open_file(path, opened)
    lengths, places, sizes = [], {"genes": [], "expressions": []}, []
    with pa.memory_map(str(path)) as file:
        base = file.read_buffer(1).address  # of the file's first byte, as mapped
        file.seek(0)
        with pa.ipc.open_stream(file) as stream:
            for batch in stream:
                offsets = _offsets(batch.column("genes"))
                if not np.array_equal(np.diff(offsets), np.diff(_offsets(batch.column("expressions")))):
                    raise OSError(f"{path}: lists of genes and of expressions differ in length")
                lengths.append(np.diff(offsets).astype(np.int64))
                sizes.append(int(offsets[-1] - offsets[0]))
                for name, found in places.items():
                    values = batch.column(name).values
                    first = int(_offsets(batch.column(name))[0]) + values.offset
                    found.append(values.buffers()[1].address - base + first * values.type.bit_width // 8)
        types = {name: np.dtype(stream.schema.field(name).type.value_type.to_pandas_dtype()) for name in places}
    edges = np.cumsum([0, *sizes])
    indptr = np.cumsum(np.concatenate([[0], *lengths]))
    arrays = [
        Plain(f"{path}: {name}", fd, types[name], edges, np.array(places[name])) for name in ("expressions", "genes")
    ]
    return Part(indptr, *arrays)


def _offsets(column) -> np.ndarray:
    """int32 or int64, (rows + 1,): where each list begins in the column's values, and where the last ends."""
    width = np.int64 if str(column.type).startswith("large_list") else np.int32
    return np.frombuffer(column.buffers()[1], width, len(column) + 1, column.offset * np.dtype(width).itemsize)
