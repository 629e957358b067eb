"""Entropy of the labels in a minibatch: as measured, and as expected for random sampling."""

import numpy as np
from scipy.stats import hypergeom


def mean_and_error(bits: np.ndarray, per_fetch: int) -> tuple[float, float]:
    """(mean, standard error of the mean) of the minibatches' entropies, in bits.

    Minibatches of one fetch share blocks and are therefore correlated, so the error is computed from the means of whole
    fetches. The mean is nan without minibatches, the error is nan for fewer than two whole fetches.

    bits: the entropy of each minibatch, in order of delivery. per_fetch: the number of minibatches in a fetch.
    """
    if not len(bits):
        return np.nan, np.nan
    whole = bits[: len(bits) // per_fetch * per_fetch].reshape(-1, per_fetch).mean(axis=1)
    error = whole.std(ddof=1) / np.sqrt(len(whole)) if len(whole) > 1 else np.nan
    return float(bits.mean()), float(error)


def of_codes(codes: np.ndarray) -> float:
    """Entropy in bits of one minibatch's labels. Missing labels (negative codes) are omitted; nan if all are."""
    counts = np.bincount(codes[codes >= 0])
    shares = counts[counts > 0] / counts.sum() if counts.sum() else np.array([np.nan])
    return max(0.0, float(-(shares * np.log2(shares)).sum())) if len(shares) > 1 else float(0 * shares[0])


def of_batches(batches: list[np.ndarray], labels: np.ndarray, batch_size: int) -> np.ndarray:
    """Entropy in bits of each full minibatch. Shorter minibatches are omitted: their size alone lowers the entropy.

    batches: the cell indices of each minibatch. labels: the code of every cell.
    """
    return np.array([of_codes(labels[rows]) for rows in batches if len(rows) == batch_size])


def shares(labels: np.ndarray) -> np.ndarray:
    """The share of each label among the labelled cells, indexed by label code. Negative codes are missing labels."""
    counts = np.bincount(labels[labels >= 0])
    return counts / counts.sum()


def random_ideal(labels: np.ndarray, batch_size: int) -> float:
    """Expected entropy in bits of a minibatch drawn at random, without replacement, from all labelled cells.

    E[H] = - sum_k sum_n Hyp(n; N, N_k, m) (n/m) log2(n/m), which is exact. N: number of labelled cells; N_k: number of
    cells with label k; m: batch size. If m > N, the entropy of all labelled cells.
    """
    sizes = np.bincount(labels[labels >= 0])
    n, total = np.arange(1, batch_size + 1), sizes.sum()
    if batch_size > total:
        return of_codes(labels)
    term = -(n / batch_size) * np.log2(n / batch_size)
    return float(sum((hypergeom.pmf(n, total, size, batch_size) * term).sum() for size in sizes if size))
