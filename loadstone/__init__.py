"""Our loader: block sampling with batched fetching, from files as they are.

    from loadstone import BlockLoader, open_h5ad

    loader = BlockLoader(open_h5ad(["plate1.h5ad", "plate2.h5ad"]), batch_size=64)
    for batch in loader:
        batch.x, batch.rows

sampling/ draws the order of the rows in an epoch, and divides it among ranks and workers. formats/ opens files and
validates their metadata; each of its modules is for one storage format. reading/ reads rows, and prefetches the next
fetch. codecs/ decodes chunks in compiled loops. loader.py combines these into `BlockLoader`, and torch.py wraps it as
a torch dataset. `python -m loadstone.compile` compiles the loops ahead of their first use.
"""

from loadstone.formats.h5ad import open_h5ad
from loadstone.formats.indexed import Indexed
from loadstone.formats.obs import obs_codes
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
    "open_h5ad",
]
