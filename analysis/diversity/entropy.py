"""How mixed minibatches are: the entropy of their labels, measured and expected."""

import numpy as np
from scipy.stats import hypergeom


def mean_and_error(bits: np.ndarray, per_fetch: int) -> tuple[float, float]:
    """The mean of the batches' entropies and its standard error; nan for what too few batches cannot give.

    Batches of one fetch are made of the same blocks and so alike: the error is of the means of whole fetches.
    """
    if not len(bits):
        return np.nan, np.nan
    whole = bits[: len(bits) // per_fetch * per_fetch].reshape(-1, per_fetch).mean(axis=1)
    error = whole.std(ddof=1) / np.sqrt(len(whole)) if len(whole) > 1 else np.nan
    return float(bits.mean()), float(error)


def of_codes(codes: np.ndarray) -> float:
    """Entropy in bits of one batch's labels; codes below 0 are missing and left out; nan where none is left."""
    counts = np.bincount(codes[codes >= 0])
    shares = counts[counts > 0] / counts.sum() if counts.sum() else np.array([np.nan])
    return max(0.0, float(-(shares * np.log2(shares)).sum())) if len(shares) > 1 else float(0 * shares[0])


def of_batches(batches: list[np.ndarray], labels: np.ndarray, batch_size: int) -> np.ndarray:
    """Entropy in bits of each full batch. Shorter ones hold less by their size alone and are left out."""
    return np.array([of_codes(labels[rows]) for rows in batches if len(rows) == batch_size])


def shares(labels: np.ndarray) -> np.ndarray:
    """Each label's share of the cells that have one."""
    counts = np.bincount(labels[labels >= 0])
    return counts / counts.sum()


def random_ideal(labels: np.ndarray, batch_size: int) -> float:
    """Expected entropy in bits of a batch drawn at random, without replacement, from all labelled cells.

    E[H] = - sum_k sum_n Hyp(n; N, N_k, m) (n/m) log2(n/m), exact: what no loader can beat on average.
    """
    sizes = np.bincount(labels[labels >= 0])
    n, total = np.arange(1, batch_size + 1), sizes.sum()
    if batch_size > total:
        return of_codes(labels)
    term = -(n / batch_size) * np.log2(n / batch_size)
    return float(sum((hypergeom.pmf(n, total, size, batch_size) * term).sum() for size in sizes if size))
