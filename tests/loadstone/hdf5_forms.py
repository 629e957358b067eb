"""The forms in which HDF5 stores an array."""

from itertools import product
from pathlib import Path

import h5py
import hdf5plugin

HDF5 = [{"chunks": (n,), **c} for n, c in product([1, 7, 64, 100_000], [{"compression": "gzip"}, {}])] + [
    {},
    {"chunks": (64,), "compression": "gzip", "shuffle": True},
    {"chunks": (64,), "shuffle": True},
    {"chunks": (64,), "compression": "lzf"},
    {"chunks": (64,), "compression": "gzip", "fletcher32": True},
    {"chunks": (63,), "compression": "lzf", "shuffle": True, "fletcher32": True},
    {"chunks": (64,), "scaleoffset": 0},
    {"chunks": (64,), **hdf5plugin.Zstd()},
    {"chunks": (64,), **hdf5plugin.Blosc(cname="lz4", shuffle=hdf5plugin.Blosc.SHUFFLE)},
    {"chunks": (64,), "shuffle": True, **hdf5plugin.Zstd()},
]
"""The options of `create_dataset`."""


def rewrite(path: Path, types: dict[str, str] | None = None, **options: object) -> None:
    """Rewrites data and indices of X in an h5ad file, with other dtypes (`types`, by name) and h5py options.

    Chunked arrays are made resizable, because h5py allows a chunk longer than the array only then.
    """
    with h5py.File(path, "a") as file:
        for name in ("data", "indices"):
            values = file["X"][name][:].astype((types or {}).get(name, file["X"][name].dtype))
            del file["X"][name]
            grows = {} if options.get("chunks") is None else {"maxshape": (None,)}
            file["X"].create_dataset(name, data=values, **options, **grows)
