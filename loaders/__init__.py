"""One adapter a file. Importing this package, or an adapter, imports no loader's library."""

from importlib import import_module

from harness.machine import interpreter
from loaders.protocol import Loader

NOT_INSTALLED = "not installed"

NAMES = {
    "reference": "loaders.reference:Reference",
    "stream": "loaders.stream:Stream",
    "annloader": "loaders.annloader:AnnLoader",
    "scdataset": "loaders.scdataset:ScDataset",
    "native": "loaders.native:Native",
    "memmap": "loaders.memmap:MemMap",
    "huggingface": "loaders.huggingface:HuggingFace",
    "bionemo": "loaders.bionemo:BioNeMo",
    "annbatch": "loaders.annbatch:AnnBatch",
    "annbatch_unshuffled": "loaders.annbatch:AnnBatchUnshuffled",
    "mapped": "loaders.mapped:Mapped",
    "native_zarr": "loaders.native:NativeZarr",
    "native_zarr_shuffled": "loaders.native:NativeZarrShuffled",
    "native_arrow": "loaders.native:NativeArrow",
    "native_bionemo": "loaders.native:NativeBioNeMo",
    "tiledbsoma": "loaders.tiledbsoma:TileDBSOMA",
    "cellarium": "loaders.cellarium:Cellarium",
    "slaf": "loaders.slaf:Slaf",
}


def get(name: str) -> type[Loader]:
    """The adapter class called `name`; KeyError for a name that is not in NAMES."""
    return load(NAMES[name])


def load(where: str) -> type[Loader]:
    """The adapter class at "module:Class"."""
    module, attribute = where.split(":")
    return getattr(import_module(module), attribute)


def holds_all(name: str) -> bool:
    """Whether the loader has all cells in memory once it is open, as no loader of an atlas can."""
    return getattr(get(name), "in_memory", False)


def unavailable(name: str) -> str | None:
    """Why the loader cannot run here, or None: looks for its libraries without importing them."""
    missing = interpreter.missing(name, get(name).imports)
    if not missing:
        return None
    return f"{' and '.join(missing)} {NOT_INSTALLED}: EXTRAS={name} make setup"
