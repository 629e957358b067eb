"""Tokens without padding, to be sent: integers as narrow as they fit."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from loadstone.codecs.compiled import compiled
from loadstone.tokens.batch import Frame, TokenBatch


class Packed(NamedTuple):
    """The tokens of some cells, one after another.

    indptr: where those of each cell begin, int64 (cells + 1,). tokens: unsigned, (tokens,). values: their bins,
    unsigned (tokens,); None if the encoding has none.
    """

    indptr: np.ndarray
    tokens: np.ndarray
    values: np.ndarray | None

    def cut(self, start: int, stop: int, frame: Frame) -> TokenBatch:
        """The cells `start` to `stop` (exclusive), as the encoding `frame` made them; all are new arrays."""
        shape = stop - start, frame.length
        ids, mask = np.empty(shape, np.int64), np.empty(shape, np.bool_)
        indptr = self.indptr[start : stop + 1]
        _spread(indptr, self.tokens, frame.pad, ids, mask)
        if self.values is None:
            return TokenBatch(ids, mask, None)
        values = np.empty(shape, np.int64)
        _spread(indptr, self.values, 0, values, mask)
        return TokenBatch(ids, mask, values)


def packed(batches: Iterable[TokenBatch]) -> Packed:
    """The tokens of all cells of one or several minibatches, which begin their rows."""
    lengths, tokens, values = [np.zeros(1, np.int64)], [], []
    for batch in batches:
        lengths.append(batch.mask.sum(axis=1))
        tokens.append(_narrow([batch.ids[batch.mask]]))
        if batch.values is not None:
            values.append(_narrow([batch.values[batch.mask]]))
    return Packed(np.cumsum(np.concatenate(lengths)), _narrow(tokens), _narrow(values) if values else None)


def token_bytes(frame: Frame) -> int:
    """The most bytes of a token and its bin."""
    most = max(int(frame.vocabulary.max(initial=0)), frame.first or 0, frame.last or 0)
    return np.min_scalar_type(most).itemsize + np.min_scalar_type(getattr(frame, "bins", 0)).itemsize


def _narrow(parts: list[np.ndarray]) -> np.ndarray:
    """The numbers, of at least 0, in the narrowest unsigned dtype that holds all of them."""
    most = max((int(part.max(initial=0)) for part in parts), default=0)
    return np.concatenate([part.astype(np.min_scalar_type(most)) for part in parts])


@compiled
def _spread(indptr, numbers, pad, rows, mask):
    """Writes the numbers of each cell at the beginning of its row, and `pad` behind them."""
    for i in range(len(indptr) - 1):
        n = min(indptr[i + 1] - indptr[i], rows.shape[1])
        for j in range(n):
            rows[i, j] = numbers[indptr[i] + j]
        rows[i, n:], mask[i, :n], mask[i, n:] = pad, True, False
