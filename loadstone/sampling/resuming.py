"""What is left of an epoch when training resumes on another number of ranks, dealt anew."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from loadstone.sampling.sharding import Share

Span = tuple[int, int]
"""The first position in an order, and the position after the last."""


class Length(NamedTuple):
    """An order of which only the lengths are known. It is enough to divide it, see `Share.spans`."""

    n_rows: int
    fetch_rows: int

    def fetch(self, k: int) -> np.ndarray:
        raise TypeError("the rows of this order are not known")


class Part(NamedTuple):
    """A part of an epoch: `ranks` ranks delivered `delivered` minibatches each."""

    ranks: int
    delivered: int


class Left:
    """The positions of an epoch that are left after some parts of it, as an order that is divided like a whole epoch.

    length: of the order of the whole epoch. batch_size: rows in a minibatch. parts: in the order of their delivery.

    Rows that one number of ranks leaves out at the end of an epoch, see `Share`, are left too.
    """

    def __init__(self, length: Length, batch_size: int, parts: Sequence[Part], *, drop_last: bool = False) -> None:
        self.fetch_rows, self.batch_size, self.drop_last = length.fetch_rows, batch_size, drop_last
        self.spans: list[Span] = [(0, length.n_rows)]
        for part in parts:
            delivered = [span for rank in range(part.ranks) for span in self._delivered(part, rank)]
            self.spans = _without([each for span in delivered for each in self.real(*span)], self.spans)

    def share(self, rank: int, ranks: int) -> Share:
        """What one of `ranks` ranks delivers of it. `real` maps its spans to positions in the whole epoch."""
        n_rows = sum(stop - start for start, stop in self.spans)
        length = Length(n_rows, self.fetch_rows)
        return Share(length, self.batch_size, rank=rank, ranks=ranks, drop_last=self.drop_last)

    def real(self, start: int, stop: int) -> list[Span]:
        """The spans of the whole epoch that stand at the positions `start` to `stop` of what is left."""
        result, before = [], 0
        for first, last in self.spans:
            shift = first - before  # from positions of what is left to those of the whole epoch
            if max(start + shift, first) < min(stop + shift, last):
                result.append((max(start + shift, first), min(stop + shift, last)))
            before += last - first
        return result

    def _delivered(self, part: Part, rank: int) -> list[Span]:
        spans, left = [], part.delivered
        for start, _, cuts in self.share(rank, part.ranks).spans():
            n = min(left, len(cuts) - 1)
            spans.append((start, start + int(cuts[n])))
            left -= n
            if not left:
                break
        return spans


def _without(taken: Sequence[Span], spans: Sequence[Span]) -> list[Span]:
    """The spans without those taken, each of which lies within one of them."""
    left = []
    taken = sorted(taken)
    for start, stop in spans:
        for a, b in taken:
            if start <= a < stop:
                if start < a:
                    left.append((start, a))
                start = b
        if start < stop:
            left.append((start, stop))
    return left
