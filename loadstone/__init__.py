"""Our loader: block sampling with batched fetching, from files as they are.

    from loadstone import BlockLoader, open_h5ad

    loader = BlockLoader(open_h5ad(["plate1.h5ad", "plate2.h5ad"]), batch_size=64)
    for batch in loader:
        batch.x, batch.rows

sampling/ draws which rows come in what order, and divides an epoch among ranks and workers; formats/ opens files and
checks what they say, one storage format a file; reading/ reads rows, and the next fetch ahead; codecs/ decodes chunks
in compiled loops. loader.py puts them together, and torch.py is torch's view of it. `python -m loadstone.compile`
compiles the loops ahead.
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
