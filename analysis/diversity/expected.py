"""What entropy of a label a minibatch should have, by block size and fetch factor.

p: shares of the K labels; m: cells of a minibatch; b: block size; f: fetch factor; M = m f: the rows of a buffer, which
is filled with blocks of one label each, drawn independently (the set is much larger than a buffer), and shuffled as a
whole. Labels that change within a block mix better than this says.
"""

import numpy as np
from scipy.special import gammaln
from scipy.stats import binom

LN2 = np.log(2)
TAIL = 9.0  # standard deviations of a binomial beyond which nothing is added up


def label_entropy(p: np.ndarray) -> float:
    """H(p) in bits."""
    p = p[p > 0]
    return float(-(p * np.log2(p)).sum())


def exact(p: np.ndarray, m: int, b: int, f: int) -> float:
    """E[H] in bits: a sum over how many blocks of a label the buffer holds, and cells of them the minibatch.

    - sum_k sum_x Bin(x; M/b, p_k) sum_n Hyp(n; M, b x, m) (n/m) log2(n/m). A block longer than a buffer fills it.
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
    """The chances of n of a label's rows among those drawn; scipy's own takes ten times as long."""
    possible = (n <= of_label) & (drawn - n <= rows - of_label)
    hits, misses = np.minimum(n, of_label), np.minimum(drawn - n, rows - of_label)
    logs = _log_choose(of_label, hits) + _log_choose(rows - of_label, misses) - _log_choose(rows, drawn)
    return np.where(possible, np.exp(logs), 0.0)


def _log_choose(n: np.ndarray | int, k: np.ndarray | int) -> np.ndarray:
    return gammaln(n + 1.0) - gammaln(k + 1.0) - gammaln(n - k + 1.0)


def first_order(p: np.ndarray, m: int, b: int, f: int) -> float:
    """H(p) - (K - 1) / (2 N_eff ln 2): the bias of as many independent cells as the minibatch is worth."""
    return label_entropy(p) - ((p > 0).sum() - 1) / (2 * effective_cells(m, b, f) * LN2)


def effective_cells(m: int, b: int, f: int) -> float:
    """Independent cells that give as uneven a minibatch: m for b = 1, m / b for f = 1."""
    buffer = m * f
    return 1 / (b / buffer + (1 - b / buffer) * (buffer - m) / (m * (buffer - 1)))


def poster_bounds(p: np.ndarray, m: int, b: int) -> tuple[float, float]:
    """(lower, upper) as the scDataset poster prints them.

    The upper one, H(p) + (K - 1) / (2 m ln 2), is above H(p), and no minibatch's expectation is (Jensen): it holds,
    and says nothing. With a minus it would be the level of cells drawn at random.
    """
    bias = ((p > 0).sum() - 1) / (2 * m * LN2)
    return label_entropy(p) - b * bias, label_entropy(p) + bias


def longest_block(f: int, within: float = 0.5) -> int:
    """The largest b whose minibatches lose at most `within` more of the random bias than cells drawn at random do.

    By first order the bias in a large buffer is 1 + (b - 1) / f times the random one: half more is the poster's
    guideline, b <= f / 2.
    """
    return int(within * f) + 1
