"""Small undamaged stores, one of each storage form, all with the same counts. The fuzzer calls them seeds."""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory

import anndata as ad
import h5py
import hdf5plugin
import numpy as np
import pandas as pd
import scipy.sparse as sp

GENES = 50
LENGTHS = (90, 150)  # rows of the two files
EMPTY = 7  # the row without counts
LONG_AGO = 10**18  # ns: the modification time of every file before it is opened, so that a later change is visible


@dataclass(frozen=True)
class Form:
    """A storage form.

    group: "h5ad", "dense", "zarr", "arrow" or "scdl". write: writes a store into a folder. paths: the files or groups
    that hold arrays, relative to the folder. matrix: the path of X within an h5ad file. traits: properties by which
    mutations select forms.
    """

    name: str
    group: str
    write: Callable[[Path], None]
    paths: tuple[str, ...]
    matrix: str = "X"
    traits: frozenset[str] = field(default_factory=frozenset)


@cache
def truth() -> np.ndarray:
    """(240, 50) float32: rows of different density, mostly small counts, some of them not whole numbers."""
    rng = np.random.default_rng(0)
    n = sum(LENGTHS)
    share = rng.choice([0.05, 0.3, 0.8], (n, 1))
    x = np.where(rng.random((n, GENES)) < share, rng.geometric(0.3, (n, GENES)), 0).astype(np.float32)
    x[::9] *= np.float32(1.1)
    x[EMPTY] = 0
    return x


def parts() -> list[np.ndarray]:
    return np.split(truth(), [LENGTHS[0]])


def _var() -> pd.DataFrame:
    return pd.DataFrame(index=[f"g{g}" for g in range(GENES)])


def store_array(group: h5py.Group, name: str, values: np.ndarray, options: dict) -> None:
    """Replaces a dataset. A chunked one is made resizable, because only then may a chunk be longer than the dataset."""
    del group[name]
    grows = {"maxshape": (None,) * values.ndim} if "chunks" in options else {}
    group.create_dataset(name, data=values, **options, **grows)


def _h5ad(folder: Path, options: dict, matrix: str = "X", index: str = "i4", dense: bool = False) -> None:
    """Writes with anndata, replaces the arrays according to the options, and copies all to a file without gaps."""
    for i, part in enumerate(parts()):
        x = part if dense else sp.csr_matrix(part)
        cells = ad.AnnData(x, pd.DataFrame(index=[f"c{r}" for r in range(len(part))]), _var())
        if matrix == "raw/X":
            cells.raw = cells.copy()
        elif matrix != "X":
            cells.layers[matrix.removeprefix("layers/")] = x
        with TemporaryDirectory() as beside:
            cells.write_h5ad(Path(beside) / "first.h5ad")
            with h5py.File(Path(beside) / "first.h5ad", "a") as file, h5py.File(folder / f"part{i}.h5ad", "w") as out:
                if dense:
                    attributes = dict(file["X"].attrs)
                    store_array(file, "X", part, options)
                    file["X"].attrs.update(attributes)
                else:
                    for name in ("data", "indices", "indptr"):
                        values = file[matrix][name][:]
                        store_array(file[matrix], name, values.astype(index) if name == "indices" else values, options)
                out.attrs.update(file.attrs)
                for name in file:
                    file.copy(name, out)


def _zarr(folder: Path, version: int, options: dict) -> None:
    import zarr

    for i, part in enumerate(parts()):
        root = zarr.open_group(folder / f"part{i}.zarr", mode="w", zarr_format=version)
        x = sp.csr_matrix(part)
        ad.io.write_elem(root, "X", x)
        ad.io.write_elem(root, "var", _var())
        for name in ("data", "indices"):
            del root["X"][name]
            root["X"].create_array(name, data=getattr(x, name), **options)


def _arrow(folder: Path, large: bool) -> None:
    import pyarrow as pa

    kind, offset = (pa.LargeListArray, np.int64) if large else (pa.ListArray, np.int32)
    for i, part in enumerate(parts()):
        x = sp.csr_matrix(part)
        lists = [kind.from_arrays(pa.array(x.indptr.astype(offset)), pa.array(v)) for v in (x.indices, x.data)]
        table = pa.table([*lists, np.arange(len(part))], ["genes", "expressions", "row"])
        with pa.OSFile(str(folder / f"data-{i}.arrow"), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=40)
    files = [{"filename": f"data-{i}.arrow"} for i in range(len(LENGTHS))]
    state = {"_data_files": files, "_fingerprint": "0" * 16, "_format_type": None, "_split": None}
    (folder / "state.json").write_text(json.dumps(state, indent=2))


def _scdl(folder: Path, types: dict[str, str]) -> None:
    """Writes the layout of the SCDL library directly, because its own writer takes seconds."""
    x = sp.csr_matrix(truth())
    write_scdl(
        folder,
        {"DATA": x.data, "ROWPTR": x.indptr.astype(types["ROWPTR"]), "COLPTR": x.indices.astype(types["COLPTR"])},
    )


SCDL_FILES = {"DATA": "data.npy", "ROWPTR": "row_ptr.npy", "COLPTR": "col_ptr.npy"}


def write_scdl(folder: Path, arrays: dict[str, np.ndarray]) -> None:
    from bionemo.scdl.schema.header import ArrayInfo, Backend, SCDLHeader
    from bionemo.scdl.util.scdl_constants import ArrayDType

    kinds = {kind.numpy_dtype_string: kind for kind in ArrayDType if "STRING" not in kind.name}
    infos = [ArrayInfo(name, len(values), kinds[str(values.dtype)]) for name, values in arrays.items()]
    SCDLHeader(backend=Backend.MEMMAP_V0, arrays=infos).save(str(folder / "header.sch"))
    for name, values in arrays.items():
        values.tofile(folder / SCDL_FILES[name])


def _forms() -> list[Form]:
    from zarr.codecs import BloscCodec, GzipCodec, ZstdCodec

    gzip = {"chunks": (128,), "compression": "gzip"}
    blosc = {"chunks": (128,), **hdf5plugin.Blosc(cname="lz4", shuffle=hdf5plugin.Blosc.SHUFFLE)}
    lz4, zstd = BloscCodec(cname="lz4", shuffle="shuffle"), BloscCodec(cname="zstd", shuffle="bitshuffle")
    in_files = {"chunks": (400,)}
    files, groups = ("part0.h5ad", "part1.h5ad"), ("part0.zarr", "part1.zarr")

    def h5ad(name: str, options: dict, *traits: str, matrix: str = "X", **more: object) -> Form:
        write = partial(_h5ad, options=options, matrix=matrix, **more)
        return Form(f"h5ad {name}", "h5ad", write, files, matrix, frozenset(traits))

    def dense(name: str, options: dict, *traits: str) -> Form:
        return Form(
            f"dense {name}", "dense", partial(_h5ad, options=options, dense=True), files, "X", frozenset(traits)
        )

    def zarr(name: str, version: int, options: dict, *traits: str) -> Form:
        write = partial(_zarr, version=version, options=options)
        return Form(f"zarr {name}", "zarr", write, groups, "X", frozenset({f"v{version}", *traits}))

    def sharded(name: str, compressors: object, *traits: str, location: str = "end") -> Form:
        options = {
            "chunks": (256,),
            "shards": {"shape": (1280,), "index_location": location},
            "compressors": compressors,
        }
        return zarr(f"sharded {name}", 3, options, "sharded", location, *traits)

    return [
        h5ad("gzip", gzip, "chunked"),
        h5ad("gzip long chunks", gzip | {"chunks": (1400,)}, "chunked"),
        h5ad("gzip huge chunks", gzip | {"chunks": (90_000,)}, "chunked"),  # larger than a cache when decoded
        h5ad("chunked", {"chunks": (128,)}, "chunked"),
        h5ad("contiguous", {}),
        h5ad("gzip shuffle", gzip | {"shuffle": True}, "chunked"),
        h5ad("lzf", {"chunks": (128,), "compression": "lzf"}, "chunked"),
        h5ad("gzip fletcher32", gzip | {"fletcher32": True}, "chunked"),
        h5ad("blosc lz4", blosc, "chunked", "blosc"),
        h5ad("zstd", {"chunks": (128,), **hdf5plugin.Zstd()}, "chunked"),
        h5ad("gzip int64", gzip, "chunked", index="i8"),
        h5ad("raw/X", gzip, "chunked", matrix="raw/X"),
        h5ad("layers", blosc, "chunked", "blosc", matrix="layers/counts"),
        dense("gzip", {"chunks": (20, 30), "compression": "gzip"}, "chunked"),
        dense("contiguous", {}),
        zarr("v2", 2, in_files, "blosc"),
        zarr("v3", 3, in_files),
        sharded("blosc lz4", lz4, "blosc"),
        sharded("blosc zstd", zstd, "blosc"),
        sharded("plain", None),
        sharded("index first", lz4, "blosc", location="start"),
        zarr("v3 zstd", 3, in_files | {"compressors": ZstdCodec(level=19)}),
        zarr("v3 gzip", 3, in_files | {"compressors": GzipCodec()}),
        Form("arrow lists", "arrow", partial(_arrow, large=False), (".",)),
        Form("arrow large lists", "arrow", partial(_arrow, large=True), (".",), traits=frozenset({"large"})),
        Form("scdl small numbers", "scdl", partial(_scdl, types={"ROWPTR": "u2", "COLPTR": "u1"}), (".",)),
        Form("scdl", "scdl", partial(_scdl, types={"ROWPTR": "u8", "COLPTR": "u4"}), (".",)),
    ]


@cache
def forms() -> dict[str, Form]:
    return {form.name: form for form in _forms()}


def write_seed(form: Form) -> dict[str, bytes]:
    """The content of each file of an undamaged store, by path relative to the store."""
    with TemporaryDirectory() as folder:
        form.write(Path(folder))
        return {
            str(path.relative_to(folder)): path.read_bytes()
            for path in sorted(Path(folder).rglob("*"))
            if path.is_file()
        }


class Store:
    """The files of one store in a folder."""

    def __init__(self, folder: Path, form: Form) -> None:
        self.folder, self.form = folder, form

    def fill(self, seed: dict[str, bytes]) -> None:
        self.folder.mkdir(parents=True)
        for name, content in seed.items():
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).write_bytes(content)

    def differs(self, seed: dict[str, bytes]) -> bool:
        """Whether a file is missing, additional, or different from the seed."""
        return {name: bytes(self.read(name)) for name in self.files()} != seed

    def files(self) -> list[str]:
        return sorted(str(path.relative_to(self.folder)) for path in self.folder.rglob("*") if path.is_file())

    def read(self, name: str) -> bytearray:
        return bytearray((self.folder / name).read_bytes())

    def write(self, name: str, content: bytes) -> None:
        """Overwrites a file in place, so that it keeps its inode; creates it if it does not exist."""
        (self.folder / name).write_bytes(content)

    def age(self) -> None:
        """Sets the modification time of all files to LONG_AGO."""
        for name in self.files():
            os.utime(self.folder / name, ns=(LONG_AGO, LONG_AGO))
