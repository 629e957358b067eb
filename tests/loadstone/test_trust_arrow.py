"""Malformed Arrow data sets: for each defect one error that names the file."""

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from loadstone.formats import arrow
from loadstone.reading.matrix import open_matrix
from tests.loadstone.trust import GENE, GENES, OUTPUTS, X, read_all


def write_arrow(
    folder: Path, change: Callable[[pa.RecordBatch], pa.RecordBatch] = lambda batch: batch, **options
) -> Path:
    """Writes X as an Arrow data set of one record batch, after `change` was applied to it. Returns the folder."""
    offsets = X.indptr.astype(np.int32)
    columns = [pa.ListArray.from_arrays(offsets, pa.array(values)) for values in (X.indices, X.data)]
    batch = change(pa.record_batch(columns, names=["genes", "expressions"]))
    folder.mkdir(exist_ok=True)
    path = str(folder / "a.arrow")
    with pa.OSFile(path, "wb") as sink, pa.ipc.new_stream(sink, batch.schema, **options) as writer:
        writer.write_batch(batch)
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": "a.arrow"}]}))
    return folder


def read_arrow(folder: Path, output: str = "csr") -> list[np.ndarray]:
    return read_all(lambda: open_matrix(partial(arrow.open_parts, folder), GENES, output=output, threads=2))


OFFSETS = {
    "far beyond the values": lambda v: v + 1_000,
    "swapped": lambda v: np.concatenate([v[:20], v[[21, 20]], v[22:]]),
    "negative": lambda v: np.concatenate([[-5], v[1:]]),
}


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("defect", OFFSETS)
def test_offsets_of_arrow(tmp_path: Path, defect: str, output: str) -> None:
    folder = write_arrow(tmp_path / "set")
    old = X.indptr.astype(np.int32)
    raw = (folder / "a.arrow").read_bytes()
    assert raw.count(old.tobytes()) == 2
    (folder / "a.arrow").write_bytes(raw.replace(old.tobytes(), OFFSETS[defect](old).astype(np.int32).tobytes()))
    with pytest.raises(ValueError, match=r"a.arrow"):
        read_arrow(folder, output)


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("gene", GENE.values())
def test_genes_of_arrow(tmp_path: Path, gene: int, output: str) -> None:
    def change(batch: pa.RecordBatch) -> pa.RecordBatch:
        genes = X.indices.copy()
        genes[100] = gene
        return batch.set_column(0, "genes", pa.ListArray.from_arrays(X.indptr.astype(np.int32), pa.array(genes)))

    with pytest.raises(ValueError, match=rf"a.arrow: genes, element 100, of row \d+, is gene {gene}"):
        read_arrow(write_arrow(tmp_path / "set", change), output)


def test_nulls_and_compression_of_arrow(tmp_path: Path) -> None:
    def with_null(batch: pa.RecordBatch) -> pa.RecordBatch:
        values = pa.array(X.data, mask=np.arange(len(X.data)) == 7)
        return batch.set_column(1, "expressions", pa.ListArray.from_arrays(X.indptr.astype(np.int32), values))

    with pytest.raises(ValueError, match=r"a.arrow, batch 0: expressions holds nulls"):
        read_arrow(write_arrow(tmp_path / "nulls", with_null))
    with pytest.raises(ValueError, match=r"save the data set without compression"):
        read_arrow(write_arrow(tmp_path / "packed", options=pa.ipc.IpcWriteOptions(compression="zstd")))


@pytest.mark.parametrize("name", ["../a.arrow", "/etc/hostname", "nothing.arrow", 5])
def test_file_names_in_the_state_of_a_data_set(tmp_path: Path, name: object) -> None:
    folder = write_arrow(tmp_path / "set")
    shutil.copy(folder / "a.arrow", tmp_path / "a.arrow")
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": name}]}))
    with pytest.raises((OSError, ValueError), match=r"state.json|nothing.arrow"):
        read_arrow(folder)
