"""Samplers. A sampler holds the options of a sampling method, and makes the order of the rows in each epoch."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import numpy as np

from loadstone.reading.validate import count
from loadstone.sampling.mixing import longest_block
from loadstone.sampling.orders import BlockShuffled, BlockWeighted, Order, Streamed, balanced


class Blocks(Protocol):
    """A source that can divide its rows into blocks along its storage chunks, see `Matrix.aligned_blocks`."""

    def aligned_blocks(self, block_size: int, rows: np.ndarray | None) -> np.ndarray | int: ...


class Sampler(Protocol):
    """`order` returns the order of one epoch. Its rows are positions among the selected rows, 0 to n_rows - 1.

    blocks: the source. rows: the ids of the selected rows, int64 (n_rows,), ascending; None: all rows. n_rows: the
    number of selected rows. fetch_rows: the number of rows per fetch. epoch: the epoch index, from 0.
    """

    def order(
        self, blocks: Blocks, rows: np.ndarray | None, n_rows: int, fetch_rows: int, seed: int, epoch: int
    ) -> Order: ...


@dataclass(frozen=True)
class Streaming:
    """Every row once, in file order. shuffle: whether the rows within each fetch are shuffled."""

    shuffle: bool = False

    def order(self, blocks, rows, n_rows, fetch_rows, seed, epoch):
        return Streamed(n_rows, fetch_rows, (seed, epoch) if self.shuffle else None)


@dataclass(frozen=True)
class BlockShuffling:
    """Every row once, in shuffled blocks of up to `block_size` consecutive rows; the rows of a fetch are shuffled too.

    A block size of 1 is random access. "auto": the longest block with which a minibatch is at most `within` bits short
    of random for each label that `BlockLoader` was given; without labels, half the fetch factor, by the rule of the
    scDataset poster (see `mixing.longest_block`). aligned: whether blocks end at chunk boundaries where possible, if
    the source is chunked; blocks may then have fewer rows than `block_size`. ValueError if block_size is neither "auto"
    nor a whole number of at least 1, or if `within` is not a positive number.
    """

    block_size: int | Literal["auto"] = "auto"
    aligned: bool = True
    within: float = 0.05

    def __post_init__(self) -> None:
        if self.block_size != "auto":
            count("block_size", self.block_size)
        if not self.within > 0:
            raise ValueError(f"within must be a positive number of bits, not {self.within!r}")

    def chosen(
        self,
        blocks: Blocks,
        rows: np.ndarray | None,
        n_rows: int,
        fetch_rows: int,
        batch_size: int,
        labels: Mapping[str, np.ndarray],
    ) -> "BlockShuffling":
        """The same with a number in place of "auto". labels: the codes of all rows of the source by name."""
        if self.block_size != "auto":
            return self
        selected = labels if rows is None else {name: codes[rows] for name, codes in labels.items()}

        def order_of(block_size: int) -> Order:
            return replace(self, block_size=block_size).order(blocks, rows, n_rows, fetch_rows, 0, 0)

        return replace(self, block_size=longest_block(order_of, selected, batch_size, fetch_rows, self.within))

    def order(self, blocks, rows, n_rows, fetch_rows, seed, epoch):
        whole = self.aligned and self.block_size > 1
        cut = blocks.aligned_blocks(self.block_size, rows) if whole else self.block_size
        return BlockShuffled(n_rows, fetch_rows, cut, seed, epoch)


@dataclass(frozen=True, eq=False)
class BlockWeightedSampling:
    """Rows drawn with replacement, in proportion to their weights, `block_size` rows at a time from the same block.

    weights: one per row of the source, finite and not negative, (rows,). block_size: the number of consecutive rows in
    a block, and the number of rows drawn from it. n_drawn: the number of rows in an epoch; None: the number of selected
    rows. ValueError for invalid arguments. `order` raises ValueError if `weights` does not fit the source, or if all
    selected rows have weight 0.
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
            raise ValueError("weights of the selected rows are all zero: none could be drawn")
        return BlockWeighted(weights, fetch_rows, self.block_size, seed, epoch, self.n_drawn)


@dataclass(frozen=True, eq=False)
class ClassBalancedSampling:
    """Rows drawn with replacement, such that every class among the selected rows is equally likely to be drawn.

    codes: the class of each row of the source, whole numbers, (rows,). Rows with a code below 0 are never drawn.
    block_size, n_drawn, and the errors: see `BlockWeightedSampling`.
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
    """The values of the selected rows. ValueError if there are too few values, or too many when all rows are selected.

    rows, n_rows: as in `Sampler`.
    """
    values = np.asarray(values)
    # With a subset, the number of rows of the source is not known here, only that it includes the subset's last row.
    needed = n_rows if rows is None else int(rows[-1]) + 1
    if len(values) < needed or (rows is None and len(values) > needed):
        raise ValueError(f"{name} has {len(values):,} entries, but the source has {needed:,} rows")
    return values if rows is None else values[rows]
