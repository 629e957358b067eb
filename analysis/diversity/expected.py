"""Expected entropy of a label in a minibatch, by block size and fetch factor.

Symbols: p: shares of the K labels; m: cells in a minibatch; b: block size; f: fetch factor; M = m f: rows in a buffer.

Model: a buffer is filled with blocks of one label each, drawn independently (the data set is much larger than a
buffer), and shuffled as a whole. If labels change within blocks, minibatches mix better than this model predicts.
"""

import numpy as np
from scipy.special import gammaln
from scipy.stats import binom

LN2 = np.log(2)
TAIL = 9.0  # standard deviations of the binomial; the sum omits terms further from the mean


def label_entropy(p: np.ndarray) -> float:
    """Entropy H(p) in bits of the label shares."""
    p = p[p > 0]
    return float(-(p * np.log2(p)).sum())


def exact(p: np.ndarray, m: int, b: int, f: int) -> float:
    """Expected entropy E[H] in bits.

    E[H] = - sum_k sum_x Bin(x; M/b, p_k) sum_n Hyp(n; M, b x, m) (n/m) log2(n/m), where x is the number of blocks of
    label k in the buffer and n the number of cells of label k in the minibatch. A block size above M counts as M.
    """
    buffer = m * f
    b = min(b, buffer)
    blocks = max(1, round(buffer / b))
    rows = blocks * b
    n = np.arange(1, m + 1)
    term = -(n / m) * np.log2(n / m)
    total = 0.0
    for share in p[p > 0]:
        spread = TAIL * np.sqrt(blocks * share * (1 - share)) + 1
        x = np.arange(max(1, int(blocks * share - spread)), min(blocks, int(blocks * share + spread)) + 1)
        total += float(binom.pmf(x, blocks, share) @ (_hypergeometric(n, rows, b * x[:, None], m) @ term))
    return total


def _hypergeometric(n: np.ndarray, rows: int, of_label: np.ndarray, drawn: int) -> np.ndarray:
    """Hypergeometric probability that n of the rows drawn have a label, if `of_label` of all `rows` rows have it.

    The function of scipy takes ten times as long.
    """
    possible = (n <= of_label) & (drawn - n <= rows - of_label)
    hits, misses = np.minimum(n, of_label), np.minimum(drawn - n, rows - of_label)
    logs = _log_choose(of_label, hits) + _log_choose(rows - of_label, misses) - _log_choose(rows, drawn)
    return np.where(possible, np.exp(logs), 0.0)


def _log_choose(n: np.ndarray | int, k: np.ndarray | int) -> np.ndarray:
    return gammaln(n + 1.0) - gammaln(k + 1.0) - gammaln(n - k + 1.0)


def first_order(p: np.ndarray, m: int, b: int, f: int) -> float:
    """First-order approximation of E[H] in bits: H(p) - (K - 1) / (2 N_eff ln 2), N_eff as in `effective_cells`."""
    return label_entropy(p) - ((p > 0).sum() - 1) / (2 * effective_cells(m, b, f) * LN2)


def effective_cells(m: int, b: int, f: int) -> float:
    """Effective sample size N_eff: so many independently drawn cells have the same bias of the entropy as a minibatch.

    N_eff is m for b = 1, and m / b for f = 1.
    """
    buffer = m * f
    return 1 / (b / buffer + (1 - b / buffer) * (buffer - m) / (m * (buffer - 1)))


def poster_bounds(p: np.ndarray, m: int, b: int) -> tuple[float, float]:
    """(lower, upper) bounds of the expected entropy of a minibatch, in bits, as printed on the scDataset poster.

    p: the shares of the K labels. m: cells in a minibatch. b: cells in a block.

    The printed upper bound, H(p) + (K - 1) / (2 m ln 2), is above H(p). The expected entropy is never above H(p)
    (Jensen's inequality), so the printed bound is true but useless. With a minus sign it would be the first-order
    entropy of random sampling.
    """
    bias = ((p > 0).sum() - 1) / (2 * m * LN2)
    return label_entropy(p) - b * bias, label_entropy(p) + bias
