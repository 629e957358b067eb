"""Entropy of the labels in a minibatch: as measured, and as expected for random sampling."""

import numpy as np
from scipy.stats import hypergeom


def mean_and_error(bits: np.ndarray, per_fetch: int) -> tuple[float, float]:
    """Mean of the minibatches' entropies, and its standard error; nan for each that has too few minibatches.

    Minibatches of one fetch share blocks and so are correlated. The error is therefore that of the means of whole
    fetches. bits: in order of delivery. per_fetch: minibatches in a fetch.
    """
    if not len(bits):
        return np.nan, np.nan
    whole = bits[: len(bits) // per_fetch * per_fetch].reshape(-1, per_fetch).mean(axis=1)
    error = whole.std(ddof=1) / np.sqrt(len(whole)) if len(whole) > 1 else np.nan
    return float(bits.mean()), float(error)


def of_codes(codes: np.ndarray) -> float:
    """Entropy in bits of one minibatch's labels; negative codes are missing labels and are omitted; nan if all are."""
    counts = np.bincount(codes[codes >= 0])
    shares = counts[counts > 0] / counts.sum() if counts.sum() else np.array([np.nan])
    return max(0.0, float(-(shares * np.log2(shares)).sum())) if len(shares) > 1 else float(0 * shares[0])


def of_batches(batches: list[np.ndarray], labels: np.ndarray, batch_size: int) -> np.ndarray:
    """Entropy in bits of each full minibatch. Shorter minibatches are omitted: their size alone lowers the entropy.

    batches: the cell indices of each minibatch. labels: the code of every cell.
    """
    return np.array([of_codes(labels[rows]) for rows in batches if len(rows) == batch_size])


def shares(labels: np.ndarray) -> np.ndarray:
    """The share of each label among the labelled cells."""
    counts = np.bincount(labels[labels >= 0])
    return counts / counts.sum()


def random_ideal(labels: np.ndarray, batch_size: int) -> float:
    """Expected entropy in bits of a minibatch drawn at random, without replacement, from all labelled cells.

    E[H] = - sum_k sum_n Hyp(n; N, N_k, m) (n/m) log2(n/m), exact.
    """
    sizes = np.bincount(labels[labels >= 0])
    n, total = np.arange(1, batch_size + 1), sizes.sum()
    if batch_size > total:
        return of_codes(labels)
    term = -(n / batch_size) * np.log2(n / batch_size)
    return float(sum((hypergeom.pmf(n, total, size, batch_size) * term).sum() for size in sizes if size))
