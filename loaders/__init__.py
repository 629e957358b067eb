"""The registry of adapters; each is a module of this package.

Importing this package or an adapter does not import the third-party library that the adapter wraps.
"""

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
    "huggingface_streaming": "loaders.huggingface_streaming:HuggingFaceStreaming",
    "bionemo": "loaders.bionemo:BioNeMo",
    "scdataset_huggingface": "loaders.scdataset:ScDatasetHuggingFace",
    "scdataset_bionemo": "loaders.scdataset:ScDatasetBioNeMo",
    "annbatch": "loaders.annbatch:AnnBatch",
    "annbatch_unshuffled": "loaders.annbatch:AnnBatchUnshuffled",
    "mapped": "loaders.mapped:Mapped",
    "native_downloaded": "loaders.downloaded:NativeDownloaded",
    "native_zarr": "loaders.native:NativeZarr",
    "native_zarr_shuffled": "loaders.native:NativeZarrShuffled",
    "native_arrow": "loaders.native:NativeArrow",
    "native_bionemo": "loaders.native:NativeBioNeMo",
    "native_cellstream": "loaders.native:NativeCellStream",
    "native_fleet": "loaders.fleet:NativeFleet",
    "ray_data": "loaders.ray_data:RayData",
    "tiledbsoma": "loaders.tiledbsoma:TileDBSOMA",
    "cellarium": "loaders.cellarium:Cellarium",
    "mosaic": "loaders.mosaic:Mosaic",
    "slaf": "loaders.slaf:Slaf",
    "cellstream": "loaders.cellstream:CellStream",
}
"""The location of each loader's adapter, as "module:Class", by loader name."""


def get(name: str) -> type[Loader]:
    """The adapter class of the loader `name`. Raises KeyError for a name that is not in NAMES."""
    return load(NAMES[name])


def load(location: str) -> type[Loader]:
    """The adapter class at `location`, which has the form "module:Class"."""
    module, attribute = location.split(":")
    return getattr(import_module(module), attribute)


def holds_all(name: str) -> bool:
    """Whether the loader holds all cells in memory while it is open, so that it cannot read an atlas."""
    return getattr(get(name), "in_memory", False)


def keeps_copies(name: str) -> bool:
    """Whether the loader keeps what it reads from a bucket in files, so that it may later read them alone."""
    return getattr(get(name), "keeps_copies", False)


def unavailable(name: str) -> str | None:
    """The reason why the loader cannot run on this machine; None if all modules that it needs are installed.

    The modules are searched for, but not imported.
    """
    missing = interpreter.missing(name, get(name).imports)
    if not missing:
        return None
    missing = [module for module in missing if not module.startswith(tuple(f"{other}." for other in missing))]
    return f"{' and '.join(missing)} {NOT_INSTALLED}: EXTRAS={name} make setup"
