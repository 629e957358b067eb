"""Our loader: block sampling with batched fetching, from files as they are.

    from loaders.native import BlockLoader, open_h5ad

    loader = BlockLoader(open_h5ad(["plate1.h5ad", "plate2.h5ad"]), batch_size=64)
    for batch in loader:
        batch.x, batch.rows

sampling.py draws which rows in what order, matrix.py and arrays.py read them, fetch.py reads ahead, division.py
divides an epoch among ranks and workers, loader.py puts them together, training.py is torch's view of it. One file a
storage format: h5ad.py, zarr.py, arrow.py, scdl.py. compile.py compiles it ahead, adapters.py is how the harness runs
it.
"""

from loaders.native.h5ad import open_h5ad
from loaders.native.indexed import Indexed
from loaders.native.loader import BlockLoader, Minibatch
from loaders.native.matrix import Matrix
from loaders.native.samplers import BlockShuffling, BlockWeightedSampling, ClassBalancedSampling, Streaming

__all__ = [
    "BlockLoader",
    "BlockShuffling",
    "BlockWeightedSampling",
    "ClassBalancedSampling",
    "Indexed",
    "Matrix",
    "Minibatch",
    "Streaming",
    "open_h5ad",
]
