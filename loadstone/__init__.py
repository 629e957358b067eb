"""loadstone: a loader of single-cell matrices on disk. It reads h5ad, zarr and other files without converting them.

It draws minibatches by block sampling with batched fetching, the method of the scDataset paper:

    from loadstone import BlockLoader, open_h5ad

    loader = BlockLoader(open_h5ad(["plate1.h5ad", "plate2.h5ad"]), batch_size=64)
    for batch in loader:
        batch.x, batch.rows

sampling/ draws the order of the rows in an epoch, and divides it among ranks and workers. formats/ opens files and
validates their metadata, with a module for each storage format. reading/ reads rows, and prefetches the next fetch.
remote/ reads from object storage, for paths that are URLs. codecs/ decodes chunks in compiled loops. loader.py combines
these into `BlockLoader`, and torch.py wraps `BlockLoader` as a torch dataset. fleet/ has the same minibatches made by
other processes and machines. `python -m loadstone.compile` compiles the loops before their first use.
"""

from loadstone.formats.csad import open_csad
from loadstone.formats.h5ad import open_h5ad
from loadstone.formats.indexed import Indexed
from loadstone.formats.obs import obs_codes
from loadstone.formats.zarr_group import open_zarr
from loadstone.loader import BlockLoader, Minibatch
from loadstone.reading.matrix import Matrix
from loadstone.sampling.samplers import BlockShuffling, BlockWeightedSampling, ClassBalancedSampling, Streaming

__all__ = [
    "BlockLoader",
    "BlockShuffling",
    "BlockWeightedSampling",
    "ClassBalancedSampling",
    "Indexed",
    "Matrix",
    "Minibatch",
    "Streaming",
    "obs_codes",
    "open_csad",
    "open_h5ad",
    "open_zarr",
]
