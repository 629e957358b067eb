"""The sizes of the transformer, and the FLOPs of its training steps. Imports no torch.

FLOPs are those that the model needs: two for each multiplication of a matrix product, forward and backward. Elementwise
operations, normalisation, softmax, the lookup of embeddings and the optimizer are not counted, and neither is what an
attention kernel computes again in its backward pass.
"""

from dataclasses import dataclass

BINS = 51  # of values; 0 is that of padding, special tokens and values to be predicted


@dataclass(frozen=True, kw_only=True)
class Size:
    """The shape of a transformer, and what it is fed by default.

    width: of an embedding. layers, heads: of attention. feed_forward: the width of the hidden layer in a block. length:
    tokens of a cell at most, with the special ones. batch_size: cells of a minibatch. fetch_factor: minibatches of a
    fetch, few enough for a run to take several fetches.
    """

    width: int
    layers: int
    heads: int
    feed_forward: int
    length: int
    batch_size: int
    fetch_factor: int

    @property
    def weights(self) -> int:
        """The number of weights by which a token is multiplied: those of the blocks and of the head."""
        block = 4 * self.width**2 + 2 * self.width * self.feed_forward
        return self.layers * block + self.width * BINS

    def parameters(self, vocabulary: int) -> int:
        """All parameters, with the embeddings of `vocabulary` tokens and of BINS values, and with the norms."""
        norms = (2 * self.layers + 1) * 2 * self.width
        return self.weights + norms + (vocabulary + BINS) * self.width

    def flops(self, tokens: int, squares: int) -> int:
        """The FLOPs of training on some cells, forward and backward.

        tokens: of all of these cells. squares: the sum of the squares of the numbers of tokens of the cells, since in a
        cell every token attends to every token. A step computes padding, too: each of its cells has as many tokens as
        the longest row.
        """
        # A token is multiplied by each weight once forward, and twice backward: for its own gradient and the weight's.
        # Attention multiplies queries by keys, and the result by values: (n, width) by (width, n), and back.
        return 6 * self.weights * tokens + 12 * self.layers * self.width * squares

    def gene_head_flops(self, tokens: int, vocabulary: int) -> int:
        """The further FLOPs of a model that predicts genes, too, by products with their embeddings, for `tokens`."""
        return 6 * self.width * vocabulary * tokens

    def flops_of_rows(self, cells: int, length: int) -> int:
        """The FLOPs of training on `cells` rows of `length` tokens, padding included."""
        return self.flops(cells * length, cells * length**2)


SIZES = {
    "small": Size(width=256, layers=3, heads=4, feed_forward=256, length=256, batch_size=32, fetch_factor=8),
    "medium": Size(width=384, layers=6, heads=4, feed_forward=384, length=512, batch_size=64, fetch_factor=16),
    "51m": Size(width=512, layers=12, heads=4, feed_forward=512, length=1_026, batch_size=240, fetch_factor=32),
}
"""By name. With Tahoe's 62,710 genes and four special tokens they have 17,264,128, 29,439,744 and 51,061,760
parameters, of which 1,192,704, 5,328,000 and 18,900,480 are weights by which tokens are multiplied.

"51m" is the model that fast-scgpt calls `scgpt`: its width, layers, heads and hidden layers, without biases, with 1,024
genes and two special tokens of a cell, in minibatches of 240 cells. The numbers are those of its repository
(slaf-project/fast-scgpt at 19630ab, fast_scgpt/config.py); the third SLAF post prints 51 million parameters, 1,024
genes and 240 cells.
"""
