"""scGPT's encoding: the genes of a cell, and the bin of the expression of each."""

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_matrix

from loadstone.codecs.compiled import compiled
from loadstone.tokens.batch import Frame, TokenBatch
from loadstone.tokens.order import BUCKETS, DIGITS, FINE, descending, expressed, framed

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
        self.check(x, *binned(*arrays, self.vocabulary, self.bins, self.special(), self.most, ids, mask, values))
        return TokenBatch(ids, mask, values)


@compiled
def binned(data, indices, indptr, vocabulary, bins, special, most, ids, mask, bin_of):
    """Writes the rows of `BinnedTokens`. Returns (what is wrong with a cell, where): see `expressed`."""
    longest = 0
    for i in range(len(indptr) - 1):
        longest = max(longest, indptr[i + 1] - indptr[i])
    genes, places, spare_places = np.empty(longest, np.int32), np.empty(longest, np.int32), np.empty(longest, np.int32)
    values, spare_keys = np.empty(longest, np.float32), np.empty(longest, np.float32)
    counts = np.empty((DIGITS, BUCKETS), np.int64)
    for i in range(len(indptr) - 1):
        n, wrong = expressed(data, indices, indptr[i], indptr[i + 1], vocabulary, genes, values)
        if wrong != FINE:
            return wrong, n
        descending(values, n, places, spare_keys, spare_places, counts)
        spare_places[:n] = 0  # the bin of each gene that is kept
        first = 0
        for j in range(n):
            if values[j] != values[first]:
                first = j
            if j < most:
                spare_places[places[j]] = (n - 1 - first) * (bins - 2) // (n - 1) + 1 if n > 1 else bins - 1
        kept = 0
        for j in range(n):
            if spare_places[j]:
                genes[kept], spare_places[kept] = genes[j], spare_places[j]
                kept += 1
        begin = framed(genes, kept, vocabulary, special, ids[i], mask[i])
        bin_of[i] = 0
        for j in range(kept):
            bin_of[i, begin + j] = spare_places[j]
    return FINE, 0
