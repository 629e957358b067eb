"""What an epoch is made of: the recipes from which each epoch's order is drawn."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from loaders.native.sampling import BlockShuffled, BlockWeighted, Order, Streamed, balanced


class Blocks(Protocol):
    """What a recipe asks of the rows: blocks of some of them (int64 ids, ascending; None: all) by storage chunks."""

    def aligned_blocks(self, block_size: int, rows: np.ndarray | None) -> np.ndarray | int: ...


class Sampler(Protocol):
    """A recipe. `order` is over places 0 to n_rows - 1 of the rows chosen."""

    def order(
        self, blocks: Blocks, rows: np.ndarray | None, n_rows: int, fetch_rows: int, seed: int, epoch: int
    ) -> Order: ...


@dataclass(frozen=True)
class Streaming:
    """The rows as they lie. With `shuffle` each fetch is shuffled within itself."""

    shuffle: bool = False

    def order(self, blocks, rows, n_rows, fetch_rows, seed, epoch):
        return Streamed(n_rows, fetch_rows, (seed, epoch) if self.shuffle else None)


@dataclass(frozen=True)
class BlockShuffling:
    """Every row once, in blocks of up to `block_size` consecutive rows; a block of one row is true random access.

    aligned: blocks break no storage chunk that need not be broken, and so may be some rows shorter.
    """

    block_size: int = 16
    aligned: bool = True

    def order(self, blocks, rows, n_rows, fetch_rows, seed, epoch):
        whole = self.aligned and self.block_size > 1
        cut = blocks.aligned_blocks(self.block_size, rows) if whole else self.block_size
        return BlockShuffled(n_rows, fetch_rows, cut, seed, epoch)


@dataclass(frozen=True, eq=False)
class BlockWeightedSampling:
    """`n_drawn` rows (None: as many as there are) with replacement, each in proportion to its weight.

    weights: one a row of the source, not negative, (rows,).
    """

    weights: np.ndarray
    block_size: int = 16
    n_drawn: int | None = None

    def order(self, blocks, rows, n_rows, fetch_rows, seed, epoch):
        weights = np.asarray(self.weights)
        weights = weights if rows is None else weights[rows]
        if len(weights) != n_rows or not (weights >= 0).all() or not weights.sum() > 0:
            raise ValueError(f"weights must be {n_rows} numbers of which none is negative and some are not zero")
        return BlockWeighted(weights, fetch_rows, self.block_size, seed, epoch, self.n_drawn)


@dataclass(frozen=True, eq=False)
class ClassBalancedSampling:
    """The same with weights that draw every class equally often.

    codes: the class of each row of the source as a whole number, (rows,); rows below 0 are never drawn.
    """

    codes: np.ndarray
    block_size: int = 16
    n_drawn: int | None = None

    def order(self, blocks, rows, n_rows, fetch_rows, seed, epoch):
        codes = np.asarray(self.codes) if rows is None else np.asarray(self.codes)[rows]
        weighted = BlockWeightedSampling(balanced(codes), self.block_size, self.n_drawn or n_rows)
        return weighted.order(blocks, None, n_rows, fetch_rows, seed, epoch)
