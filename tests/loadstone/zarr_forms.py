"""The forms in which zarr stores an array."""

from pathlib import Path

import anndata as ad
import scipy.sparse as sp
import zarr
from zarr.codecs import BloscCodec, GzipCodec

from tests import tiny

ZARR = [
    {"zarr_format": 2},
    {"zarr_format": 3},
    {"zarr_format": 3, "chunks": (64,), "shards": (640,), "compressors": BloscCodec(cname="lz4", shuffle="shuffle")},
    {
        "zarr_format": 3,
        "chunks": (64,),
        "shards": (640,),
        "compressors": BloscCodec(cname="zstd", shuffle="bitshuffle"),
    },
    {"zarr_format": 3, "chunks": (64,), "shards": (128,), "compressors": None},
    {"zarr_format": 3, "chunks": (64,), "shards": {"shape": (128,), "index_location": "start"}},
    {"zarr_format": 3, "chunks": (64,), "compressors": GzipCodec()},
]
"""`zarr_format` of the group, and the options of `create_array`."""


def write(path: Path, form: dict) -> Path:
    """Writes the tiny matrix as X of a zarr group; returns its path."""
    options = {name: value for name, value in form.items() if name != "zarr_format"}
    root = zarr.open_group(path, mode="w", zarr_format=form["zarr_format"])
    x = sp.csr_matrix(tiny.truth())
    ad.io.write_elem(root, "X", x)
    for name in ("data", "indices") if options else ():
        del root["X"][name]
        root["X"].create_array(name, data=getattr(x, name), **options)
    return path


def is_for_zarr_alone(form: dict) -> bool:
    """Whether only zarr can decode it."""
    return isinstance(form.get("compressors"), GzipCodec)
