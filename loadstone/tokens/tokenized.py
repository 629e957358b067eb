"""A source whose minibatches are tokens."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from loadstone.loader import Source
from loadstone.reading.gathering import Gathering
from loadstone.tokens.batch import Frame, TokenBatch


class Tokenized:
    """A source of CSR minibatches, such as `open_h5ad` returns, whose minibatches are `TokenBatch`.

    tokens: `RankTokens` or `BinnedTokens`. A minibatch is encoded when it is taken, without the GIL, while threads
    decode the next fetch.
    """

    def __init__(self, source: Source, tokens: Frame) -> None:
        self.source, self.tokens = source, tokens

    @property
    def row_bytes(self) -> float | None:
        return self.source.row_bytes

    def __len__(self) -> int:
        return len(self.source)

    def aligned_blocks(self, block_size: int, rows: np.ndarray | None = None) -> np.ndarray | int:
        return self.source.aligned_blocks(block_size, rows)

    def gather(self, rows: np.ndarray) -> Gathering:
        return self.source.gather(rows)

    def batches(self, fetched: Any, cuts: Sequence[int]) -> Iterator[TokenBatch]:
        yield from map(self.tokens, self.source.batches(fetched, cuts))

    def close(self) -> None:
        self.source.close()
