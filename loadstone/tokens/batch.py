"""What an encoding of cells as tokens yields, and what all encodings share."""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_matrix

from loadstone.tokens.order import NO_COUNT, OUTSIDE, TWICE

FIRST = 4  # the first token of a gene, after the special ones: padding, beginning, end and mask, as slafdb numbers them


class TokenBatch(NamedTuple):
    """The tokens of some cells. All cells have rows of the same length, which begin with a cell's tokens.

    ids: int64 (cells, length); behind the tokens of a cell is padding. mask: bool (cells, length), True for a token.
    values: the bin of each token's gene, int64 (cells, length), 0 for special tokens and for padding; None if the
    encoding has none.
    """

    ids: np.ndarray
    mask: np.ndarray
    values: np.ndarray | None


def vocabulary(n_genes: int) -> np.ndarray:
    """The token of each gene, int64 (n_genes,), for a model without a vocabulary of its own: in order, from 4 on."""
    return np.arange(FIRST, FIRST + n_genes)


@dataclass(frozen=True, kw_only=True)
class Frame:
    """What `RankTokens` and `BinnedTokens` share: where the genes of a cell are put in its row.

    vocabulary: the token of each gene, integers (genes,), or -1 for a gene that the model does not know, which is left
    out as if the cell had none of it. A cell of which no gene is left has the special tokens alone. length: tokens of a
    cell at most, special ones included. first, last: the tokens before and after the genes; None: there is none. pad:
    the token of padding. ValueError for values that do not fit together.
    """

    vocabulary: np.ndarray
    length: int
    first: int | None = 1
    last: int | None = 2
    pad: int = 0

    def __post_init__(self) -> None:
        tokens = np.asarray(self.vocabulary)
        if tokens.ndim != 1 or tokens.dtype.kind not in "iu":
            raise ValueError("vocabulary is one integer for each gene: its token, or -1")
        if min(self.pad, 0 if self.first is None else self.first, 0 if self.last is None else self.last) < 0:
            raise ValueError("tokens are numbers from 0 on: first, last and pad must be such")
        if self.most < 1:
            raise ValueError(f"length {self.length} has no room for a gene beside the special tokens")
        object.__setattr__(self, "vocabulary", np.ascontiguousarray(tokens, np.int64))

    def __call__(self, x: csr_matrix) -> TokenBatch:
        """The tokens of cells: x is CSR (cells, genes) with their counts."""
        raise NotImplementedError

    @cached_property
    def has_all(self) -> bool:
        """Whether every gene has a token."""
        return bool((self.vocabulary >= 0).all())

    @property
    def most(self) -> int:
        """The number of genes of a cell for which there is room."""
        return self.length - (self.first is not None) - (self.last is not None)

    def rows(self, x: csr_matrix) -> tuple[np.ndarray, np.ndarray]:
        """ids and mask for the cells of x, to be written. ValueError if x has other genes than the vocabulary."""
        if not isinstance(x, csr_matrix):
            raise ValueError(f'tokens are made from CSR minibatches, not {type(x).__name__}: take output="csr"')
        if x.shape[1] != len(self.vocabulary):
            raise ValueError(f"the cells have {x.shape[1]:,} genes, and the vocabulary {len(self.vocabulary):,}")
        if x.indptr[0] < 0 or (x.indptr[1:] < x.indptr[:-1]).any() or x.indptr[-1] > min(len(x.data), len(x.indices)):
            raise ValueError("the cells are not a valid CSR matrix: indptr does not fit data and indices")
        return np.empty((x.shape[0], self.length), np.int64), np.empty((x.shape[0], self.length), np.bool_)

    def check(self, x: csr_matrix, where: int, wrong: int) -> None:
        """ValueError if a compiled loop found a cell that cannot be encoded; where, wrong: see `order.expressed`."""
        if wrong == NO_COUNT:
            value, gene = x.data[where], x.indices[where]
            raise ValueError(f"gene {gene} of a cell has {value}; tokens are made from counts, whole numbers from 0 on")
        if wrong == OUTSIDE:
            raise ValueError(f"a cell has gene {x.indices[where]}, and there are {x.shape[1]:,}")
        if wrong == TWICE:
            raise ValueError(f"a cell has gene {where} twice")

    def special(self) -> tuple[int, int, int]:
        """first, last and pad for the compiled loops; -1 for none."""
        first, last = (-1 if token is None else token for token in (self.first, self.last))
        return first, last, self.pad
