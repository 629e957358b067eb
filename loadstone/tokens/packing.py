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


def packed(batches: Iterable[TokenBatch], frame: Frame) -> Packed:
    """The tokens of all cells of one or several minibatches, which the encoding `frame` made."""
    of_token, of_bin = _dtypes(frame)
    lengths, tokens, values = [np.zeros(1, np.int64)], [], []
    for batch in batches:
        lengths.append(batch.mask.sum(axis=1))
        tokens.append(batch.ids[batch.mask].astype(of_token))
        if batch.values is not None:
            values.append(batch.values[batch.mask].astype(of_bin))
    return Packed(
        np.cumsum(np.concatenate(lengths)), np.concatenate(tokens), np.concatenate(values) if values else None
    )


def token_bytes(frame: Frame) -> int:
    """The bytes of a token and its bin."""
    return sum(dtype.itemsize for dtype in _dtypes(frame))


def _dtypes(frame: Frame) -> tuple[np.dtype, np.dtype]:
    """The narrowest dtypes, unsigned, that hold all tokens and all bins of an encoding."""
    most = max(int(frame.vocabulary.max(initial=0)), frame.first or 0, frame.last or 0)
    return np.min_scalar_type(most), np.min_scalar_type(getattr(frame, "bins", 0))


@compiled
def _spread(indptr, numbers, pad, rows, mask):
    """Writes the numbers of each cell at the beginning of its row, and `pad` behind them."""
    for i in range(len(indptr) - 1):
        n = min(indptr[i + 1] - indptr[i], rows.shape[1])
        for j in range(n):
            rows[i, j] = numbers[indptr[i] + j]
        rows[i, n:], mask[i, :n], mask[i, n:] = pad, True, False
