"""Tokens of cells for transformers: as the last stage of a loader, in a compiled loop that releases the GIL.

    from loadstone import BlockLoader, open_h5ad
    from loadstone.tokens import RankTokens, Tokenized, vocabulary

    tokens = RankTokens(vocabulary=vocabulary(62_710))
    for batch in BlockLoader(Tokenized(open_h5ad("atlas.h5ad"), tokens), batch_size=64):
        batch.x.ids, batch.x.mask

`RankTokens` are Geneformer's: the genes of a cell by falling expression. `BinnedTokens` are scGPT's: genes, and the bin
of the expression of each.
"""

from loadstone.tokens.batch import Frame, TokenBatch, vocabulary
from loadstone.tokens.bins import BinnedTokens
from loadstone.tokens.ranks import RankTokens
from loadstone.tokens.tokenized import Tokenized

__all__ = ["BinnedTokens", "Frame", "RankTokens", "TokenBatch", "Tokenized", "vocabulary"]
