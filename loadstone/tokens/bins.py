"""scGPT's encoding: the genes of a cell, and the bin of the expression of each."""

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_matrix

from loadstone.codecs.compiled import compiled
from loadstone.tokens.batch import Frame, TokenBatch
from loadstone.tokens.order import FINE, descending, expressed, framed, room

LENGTH, BINS = 1_024, 51


@dataclass(frozen=True, kw_only=True)
class BinnedTokens(Frame):
    """Genes and binned values, as scGPT has them (Cui et al., 2024): the tokens of a cell's genes, in their order.

    The values of a cell above 0 are divided into bins - 1 bins, 1 to bins - 1, by bins - 1 quantiles of these values,
    from the lowest to the highest; a value's bin is the number of quantiles that are not above it. Where quantiles are
    equal, scGPT draws one of the bins between them at random; here it is the last. The quantiles are computed exactly,
    from the places of the values in their order, so that the bins of counts are those of their logarithms. Of a cell
    with too many genes the highest values are kept, of equal ones the first genes; scGPT draws genes at random. bins:
    of values, with that of 0. Other arguments: `Frame`.
    """

    length: int = LENGTH
    bins: int = BINS

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bins < 3:
            raise ValueError(f"bins {self.bins} is less than 3: one is for 0, and two for other values")

    def __call__(self, x: csr_matrix) -> TokenBatch:
        """The tokens of cells and their values: x is CSR (cells, genes) with their counts. Errors: `RankTokens`."""
        ids, mask = self.rows(x)
        values = np.empty_like(ids)
        arrays = x.data, x.indices, x.indptr
        self.check(
            x, *binned(*arrays, self.vocabulary, self.has_all, self.bins, self.special(), self.most, ids, mask, values)
        )
        return TokenBatch(ids, mask, values)


@compiled
def binned(data, indices, indptr, vocabulary, has_all, bins, special, most, ids, mask, values_of):
    """Writes the rows of `BinnedTokens`. Returns (where, what is wrong): see `expressed`."""
    genes, values, order, spare = room(indptr)
    bin_of_place = np.empty(len(order), np.int64)
    for i in range(len(indptr) - 1):
        n, wrong = expressed(data, indices, indptr[i], indptr[i + 1], vocabulary, has_all, genes, values)
        if wrong != FINE:
            return n, wrong
        descending(values, n, True, order, spare)
        value, bin_of_value = np.float32(0), bins - 1
        for j in range(min(n, most)):
            place = np.uint32(order[j])
            if values[place] != value:
                value = values[place]
                bin_of_value = (n - 1 - j) * (bins - 2) // (n - 1) + 1 if n > 1 else bins - 1
            bin_of_place[place] = bin_of_value
        for j in range(most, n):
            bin_of_place[np.uint32(order[j])] = 0
        kept = 0
        for j in range(n):
            genes[kept], bin_of_place[kept] = genes[j], bin_of_place[j]
            kept += bin_of_place[j] > 0
        begin = framed(genes, kept, vocabulary, special, ids[i], mask[i])
        values_of[i, :begin], values_of[i, begin + kept :] = 0, 0
        for j in range(kept):
            values_of[i, begin + j] = bin_of_place[j]
    return 0, FINE
