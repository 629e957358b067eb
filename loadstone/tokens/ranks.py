"""Geneformer's encoding: the genes of a cell by falling expression."""

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_matrix

from loadstone.codecs.compiled import compiled
from loadstone.tokens.batch import Frame, TokenBatch
from loadstone.tokens.order import FINE, descending, expressed, framed, room

LENGTH = 2_048  # of Geneformer's first models
NONE = np.empty(0, np.float32)


@dataclass(frozen=True, kw_only=True)
class RankTokens(Frame):
    """Rank encoding, as Geneformer has it (Theodoris et al., 2023): the tokens of a cell's genes by falling value.

    The value of a gene is its count divided by the median of its counts over many cells, in float32: `medians`, above
    0, (genes,); None: the count alone, as in slafdb. Geneformer also divides by the total of the cell, which changes
    no order. Equal values are in the order of the genes. Of a cell with too many genes the highest values are kept.
    Other arguments: `Frame`.
    """

    length: int = LENGTH
    medians: np.ndarray | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.medians is None:
            return
        medians = np.ascontiguousarray(self.medians, np.float32)
        if medians.shape != self.vocabulary.shape or not (np.isfinite(medians) & (medians > 0)).all():
            raise ValueError("medians is one number above 0 for each gene of the vocabulary")
        object.__setattr__(self, "medians", medians)

    def __call__(self, x: csr_matrix) -> TokenBatch:
        """The tokens of cells: x is CSR (cells, genes) with their counts.

        ValueError for a value that is no whole number of at least 0, for a gene that a cell has twice, and for another
        number of genes than the vocabulary's.
        """
        ids, mask = self.rows(x)
        medians = NONE if self.medians is None else self.medians
        arrays = x.data, x.indices, x.indptr
        self.check(x, *rank(*arrays, self.vocabulary, self.has_all, medians, self.special(), self.most, ids, mask))
        return TokenBatch(ids, mask, None)


@compiled
def rank(data, indices, indptr, vocabulary, has_all, medians, special, most, ids, mask):
    """Writes the rows of `RankTokens`. medians: empty for none. Returns (where, what is wrong): see `expressed`."""
    genes, values, order, spare = room(indptr)
    for i in range(len(indptr) - 1):
        n, wrong = expressed(data, indices, indptr[i], indptr[i + 1], vocabulary, has_all, genes, values)
        if wrong != FINE:
            return n, wrong
        if len(medians):
            for j in range(n):
                values[j] /= medians[np.uint32(genes[j])]
        descending(values, n, not len(medians), order, spare)
        n = min(n, most)
        for j in range(n):
            order[j] = genes[order[j]]
        framed(order, n, vocabulary, special, ids[i], mask[i])
    return 0, FINE
