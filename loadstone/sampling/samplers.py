"""What an epoch is made of: the recipes from which each epoch's order is drawn."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from loadstone.reading.validate import count
from loadstone.sampling.orders import BlockShuffled, BlockWeighted, Order, Streamed, balanced


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

    def __post_init__(self) -> None:
        count("block_size", self.block_size)

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

    def __post_init__(self) -> None:
        _check_drawing(self)
        weights = np.asarray(self.weights)
        if weights.ndim != 1 or weights.dtype.kind not in "iuf":
            raise ValueError(f"weights must be numbers in one dimension, not {weights.dtype} of {weights.shape}")
        wrong = np.flatnonzero(~((weights >= 0) & (weights < np.inf)))
        if len(wrong):
            raise ValueError(f"weights must be finite and not negative; row {wrong[0]} has {weights[wrong[0]]}")
        if not weights.any():
            raise ValueError("weights are all zero: no row could be drawn")

    def order(self, blocks, rows, n_rows, fetch_rows, seed, epoch):
        weights = _of_rows("weights", self.weights, rows, n_rows)
        if not weights.any():
            raise ValueError("weights of the rows chosen are all zero: none could be drawn")
        return BlockWeighted(weights, fetch_rows, self.block_size, seed, epoch, self.n_drawn)


@dataclass(frozen=True, eq=False)
class ClassBalancedSampling:
    """The same with weights that draw every class equally often.

    codes: the class of each row of the source as a whole number, (rows,); rows below 0 are never drawn.
    """

    codes: np.ndarray
    block_size: int = 16
    n_drawn: int | None = None

    def __post_init__(self) -> None:
        _check_drawing(self)
        codes = np.asarray(self.codes)
        if codes.ndim != 1 or codes.dtype.kind not in "iu":
            raise ValueError(f"codes must be whole numbers in one dimension, not {codes.dtype} of {codes.shape}")

    def order(self, blocks, rows, n_rows, fetch_rows, seed, epoch):
        codes = _of_rows("codes", self.codes, rows, n_rows)
        weighted = BlockWeightedSampling(balanced(codes), self.block_size, self.n_drawn or n_rows)
        return weighted.order(blocks, None, n_rows, fetch_rows, seed, epoch)


def _check_drawing(sampler: BlockWeightedSampling | ClassBalancedSampling) -> None:
    count("block_size", sampler.block_size)
    if sampler.n_drawn is not None:
        count("n_drawn", sampler.n_drawn)


def _of_rows(name: str, values: np.ndarray, rows: np.ndarray | None, n_rows: int) -> np.ndarray:
    """The values of the rows chosen; ValueError where there is not one for each row of the source."""
    values = np.asarray(values)
    # Of a subset only its last row is known here: the source may have more.
    needed = n_rows if rows is None else int(rows[-1]) + 1
    if len(values) < needed or (rows is None and len(values) > needed):
        raise ValueError(f"{name} has {len(values):,} entries, but the source has {needed:,} rows")
    return values if rows is None else values[rows]
