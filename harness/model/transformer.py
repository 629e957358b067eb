"""A transformer in the manner of scGPT (Cui et al., 2024), which predicts hidden values of genes from the others.

A cell is a row of tokens: each is the sum of the embeddings of a gene and of the bin of its value; there are no
positions. Blocks normalise first, and have attention among all tokens of a cell and a hidden layer, without biases and
without dropout. The head gives a logit for each bin. Beside scGPT there is no prediction of genes and none from the
embedding of the cell.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, gelu, scaled_dot_product_attention

from harness.model.sizes import BINS, Size

HIDDEN = 0.15  # of the genes of a cell: their values are to be predicted
IGNORED = -100  # the target of all other tokens


class Block(nn.Module):
    """Attention and a hidden layer, each added to what it is given."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.heads = size.heads
        self.norm_attention, self.norm_hidden = nn.LayerNorm(size.width), nn.LayerNorm(size.width)
        self.queries_keys_values = nn.Linear(size.width, 3 * size.width, bias=False)
        self.mixed = nn.Linear(size.width, size.width, bias=False)
        self.hidden = nn.Linear(size.width, size.feed_forward, bias=False)
        self.shown = nn.Linear(size.feed_forward, size.width, bias=False)

    def forward(self, x: Tensor, attended: Tensor) -> Tensor:
        """x: (cells, length, width). attended: bool (cells, 1, 1, length), True for tokens that are no padding."""
        parts = self.queries_keys_values(self.norm_attention(x)).unflatten(-1, (3, self.heads, -1))
        queries, keys, values = parts.permute(2, 0, 3, 1, 4)  # each (cells, heads, length, width / heads)
        attention = scaled_dot_product_attention(queries, keys, values, attn_mask=attended)
        x = x + self.mixed(attention.transpose(1, 2).flatten(-2))
        return x + self.shown(gelu(self.hidden(self.norm_hidden(x))))


class Transformer(nn.Module):
    """The model of the module's text. vocabulary: the number of tokens, of genes and special ones."""

    def __init__(self, size: Size, vocabulary: int) -> None:
        super().__init__()
        self.genes, self.values = nn.Embedding(vocabulary, size.width), nn.Embedding(BINS, size.width)
        self.blocks = nn.ModuleList(Block(size) for _ in range(size.layers))
        self.norm = nn.LayerNorm(size.width)
        self.head = nn.Linear(size.width, BINS, bias=False)

    def forward(self, ids: Tensor, mask: Tensor, values: Tensor) -> Tensor:
        """Logits (cells, length, BINS). Arguments as in `loadstone.tokens.TokenBatch`, as tensors of one device."""
        x = self.genes(ids) + self.values(values)
        attended = mask[:, None, None, :]
        for block in self.blocks:
            x = block(x, attended)
        return self.head(self.norm(x))

    def loss(self, ids: Tensor, mask: Tensor, values: Tensor) -> Tensor:
        """The mean cross-entropy, in nats, of the bins of genes drawn at random, which the model is not shown.

        Values of genes are above 0, so that 0 can stand for those that are hidden.
        """
        hidden = (torch.rand(values.shape, device=values.device) < HIDDEN) & (values > 0)
        logits = self(ids, mask, values.masked_fill(hidden, 0))
        targets = values.masked_fill(~hidden, IGNORED)
        total = cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), ignore_index=IGNORED, reduction="sum")
        return total / hidden.sum().clamp(min=1)  # no gene may be hidden if there are few
