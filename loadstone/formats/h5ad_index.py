"""The layout of h5ad files, kept in a folder, so that files are opened again without HDF5.

HDF5 finds the chunks of an array by one read after another, which takes seconds for an atlas, and longer on a slow
disk. A file is recognized by its name, its size and the time of its last change; an object in object storage by its
URL, its ETag and its size. The folder may be deleted at any time.
"""

import io
import json
import os
import zipfile
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, NamedTuple

import numpy as np

from loadstone.formats.h5ad_layout import Layout
from loadstone.reading import validate
from loadstone.reading.arrays import Through
from loadstone.reading.row_starts import RowStarts
from loadstone.remote.folder import RemoteFolder

VERSION = 2  # of the form of what is kept
# What NumPy, zipfile and json raise for a damaged file, for example RuntimeError if it seems to be encrypted.
DAMAGED = OSError, ValueError, LookupError, TypeError, ArithmeticError, EOFError, RuntimeError, zipfile.BadZipFile


class Csr(NamedTuple):
    """A CSR matrix of an h5ad file.

    genes: a hash of the gene names, see `genes.digest`. data, indices: their layout, or how they are read through h5py.
    """

    n_genes: int
    genes: str
    starts: RowStarts
    data: Layout | Through
    indices: Layout | Through


def usual() -> Path:
    """The folder in which the layout of objects is kept if none is stated: `loadstone` in the user's cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "loadstone"


def keep(folder: Path | RemoteFolder, path: Path | str, identity: str, matrix: str, csr: Csr) -> None:
    """Keeps the layout of the file `path`, whole or not at all, unless h5py is needed to read it.

    identity: of the content, see `Files.identity`. OSError if the folder cannot be written to.
    """
    name = _name(path, identity, matrix)
    if isinstance(csr.data, Through) or isinstance(csr.indices, Through):
        return
    arrays = {"base": csr.starts.base, "beyond": csr.starts.beyond}
    about = {"version": VERSION, "n_genes": csr.n_genes, "genes": csr.genes}
    for key in ("data", "indices"):
        layout: Layout = getattr(csr, key)
        fill = np.asarray(layout.fill, layout.dtype).tobytes().hex()
        about[key] = [layout.shape, layout.chunks, layout.dtype.str, layout.filters, fill]
        arrays |= {f"{key}/{each}": getattr(layout, each) for each in ("place", "size", "mask")}
    arrays["about"] = np.frombuffer(json.dumps(about).encode(), np.uint8)
    if isinstance(folder, RemoteFolder):
        memory = io.BytesIO()
        np.savez(memory, allow_pickle=False, **arrays)
        folder.put(name, memory.getbuffer())
        return
    folder.mkdir(parents=True, exist_ok=True)
    with NamedTemporaryFile(dir=folder, prefix=f".{name}-", delete=False) as aside:
        try:
            np.savez(aside, allow_pickle=False, **arrays)
            aside.close()
            os.replace(aside.name, folder / name)
        except BaseException:
            os.unlink(aside.name)
            raise


def kept(folder: Path | RemoteFolder, path: Path | str, identity: str, matrix: str) -> Csr | None:
    """The layout of the file `path`; None if it is not kept, or is damaged, so that it has to be kept again."""
    name = _name(path, identity, matrix)
    try:
        source: Any = io.BytesIO(folder.get(name)) if isinstance(folder, RemoteFolder) else folder / name
        with np.load(source, allow_pickle=False) as arrays:
            about = json.loads(arrays["about"].tobytes())
            if about["version"] != VERSION:
                return None
            data, indices = (_layout(arrays, name, *about[name]) for name in ("data", "indices"))
            starts = RowStarts(_of_kind(np.int64, arrays["base"]), _of_kind(np.uint32, arrays["beyond"]))
        if data.shape != indices.shape or not starts.check(*data.shape):
            return None
        return Csr(int(about["n_genes"]), str(about["genes"]), starts, data, indices)
    except DAMAGED:
        return None


def _layout(
    arrays: Mapping[str, np.ndarray], name: str, shape: list, chunks: list, dtype: str, filters: list, fill: str
) -> Layout:
    """The layout of "data" or "indices". ValueError, or another error of DAMAGED, if no array can have it."""
    table = [_of_kind(np.int64, arrays[f"{name}/{key}"]) for key in ("place", "size", "mask")]
    kind = np.dtype(dtype)
    value = np.frombuffer(bytes.fromhex(fill), kind)[0]
    layout = Layout(tuple(map(int, shape)), tuple(map(int, chunks)), kind, tuple(filters), value, *table)
    if kind.kind not in validate.NUMBERS or {len(each) for each in table} != {layout.n_chunks}:
        raise ValueError(f"{dtype} in {layout.n_chunks:,} chunks")
    if min(each.min(initial=0) for each in table) < 0:
        raise ValueError("a place or a size is below 0")
    return layout


def _name(path: Path | str, identity: str, matrix: str) -> str:
    name = Path(path).name
    return f"{name}-{sha256(f'{name}/{matrix}/{identity}'.encode()).hexdigest()[:16]}.npz"


def _of_kind(dtype: type, array: np.ndarray) -> np.ndarray:
    """Returns the array. ValueError unless it has one dimension and this dtype."""
    if array.dtype != dtype or array.ndim != 1:
        raise ValueError(f"{array.dtype} of {array.ndim} dimensions")
    return array
