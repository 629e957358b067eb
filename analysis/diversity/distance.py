"""Distances between the numbers of the cells in minibatches, by which SLAF's authors score an order.

They call the score an entropy. They draw pairs of cells; here the mean is over all pairs, and so exact.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np


def within(batches: Sequence[np.ndarray]) -> float:
    """The mean distance between two cells of a minibatch, over the minibatches of at least two; nan without any.

    batches: the numbers of the cells of each minibatch, integers.
    """
    means = []
    for batch in batches:
        if (n := len(batch)) > 1:
            weights = 2 * np.arange(n) - n + 1  # in ascending order a number is added once for each smaller one
            means.append(2 * float(weights @ np.sort(batch.astype(np.int64))) / (n * (n - 1)))
    return float(np.mean(means)) if means else np.nan


def across(batches: Sequence[np.ndarray]) -> float:
    """The mean distance between a cell of a minibatch and one of the next; nan for fewer than two minibatches."""
    numbers = [batch.astype(np.int64) for batch in batches if len(batch)]
    means = [np.abs(a[:, None] - b).mean() for a, b in pairwise(numbers)]
    return float(np.mean(means)) if means else np.nan


def of_random(n_cells: int) -> float:
    """The expected distance between two different cells of `n_cells`, numbered from 0."""
    return (n_cells + 1) / 3


def score(distance: float, sequential: float, n_cells: int) -> float:
    """The authors' score: 0 for the distance of the sequential order, 1 for that of cells drawn at random."""
    return (distance - sequential) / (of_random(n_cells) - sequential)
