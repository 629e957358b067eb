"""How well an order mixes labels, and the longest blocks that mix them well enough. No row is read for this."""

from bisect import bisect_left
from collections.abc import Callable, Mapping

import numpy as np
from scipy.special import gammaln

from loadstone.sampling.orders import Order

SLICE = 2**20  # codes that are converted at a time, since an atlas has 100 million
FETCHES = 32  # of an order, evenly chosen; the standard error is a few thousandths of a bit


def bits_short(order: Order, codes: np.ndarray, batch_size: int) -> tuple[float, float]:
    """By how many bits the label entropy of a minibatch falls short of that of rows drawn at random.

    Returns (mean, standard error). Arguments: `mean_entropy`.
    """
    mean, error = mean_entropy(order, codes, batch_size)
    return at_random(codes, batch_size) - mean, error


def mean_entropy(order: Order, codes: np.ndarray, batch_size: int) -> tuple[float, float]:
    """The mean label entropy in bits of the full minibatches of up to FETCHES whole fetches, and its standard error.

    The standard error is that of the means of fetches, since the minibatches of one fetch share its blocks; 0 for a
    single fetch. order: of the rows that `codes` belongs to. codes: the label of each row, whole numbers,
    (order.n_rows,). Negative codes, which stand for a missing label, count as one label. batch_size: rows in a
    minibatch.
    """
    n_labels = int(codes.max()) + 2  # with the missing one, 0
    whole = max(1, order.n_rows // order.fetch_rows)
    means = []
    for k in np.unique(np.linspace(0, whole - 1, min(whole, FETCHES)).astype(int)).tolist():
        drawn = _labels(codes[order.fetch(k)])
        batches = drawn[: len(drawn) // batch_size * batch_size].reshape(-1, batch_size)
        which = np.arange(len(batches))[:, None] * n_labels
        counts = np.bincount((which + batches).ravel(), minlength=len(batches) * n_labels)
        means.append(-_share_log2(counts, batch_size).sum() / max(1, len(batches)))
    error = np.std(means, ddof=1) / np.sqrt(len(means)) if len(means) > 1 else 0.0
    return float(np.mean(means)), float(error)


def at_random(codes: np.ndarray, batch_size: int) -> float:
    """The expected label entropy in bits of a minibatch of rows drawn at random. Arguments: `mean_entropy`."""
    sizes = np.zeros(int(codes.max()) + 2, np.int64)
    for start in range(0, len(codes), SLICE):
        sizes += np.bincount(_labels(codes[start : start + SLICE]), minlength=len(sizes))
    return expected_at_random(sizes, batch_size)


def expected_at_random(sizes: np.ndarray, batch_size: int) -> float:
    """The expected label entropy in bits of a minibatch of rows drawn at random without replacement.

    E[H] = - sum_k sum_n Hyp(n; N, N_k, m) (n/m) log2(n/m). sizes: N_k, the number of rows with label k, (labels,). N:
    the number of rows. m: batch_size; N if that is fewer.
    """
    sizes, how_many = np.unique(sizes[sizes > 0], return_counts=True)
    total = int(sizes @ how_many)
    m = min(batch_size, total)
    n = np.arange(1, m + 1)
    hits, misses = np.minimum(n, sizes[:, None]), np.minimum(m - n, total - sizes[:, None])
    logs = _log_choose(sizes[:, None], hits) + _log_choose(total - sizes[:, None], misses) - _log_choose(total, m)
    possible = (hits == n) & (misses == m - n)
    return float(-how_many @ (np.where(possible, np.exp(logs), 0.0) @ _share_log2(n, m)))


def longest_block(
    order_of: Callable[[int], Order], labels: Mapping[str, np.ndarray], batch_size: int, fetch_rows: int, within: float
) -> int:
    """The longest block that leaves a minibatch at most `within` bits short of random for every label.

    Blocks of 1, 2, 3, 4, 6, 8, 12, 16 rows and so on are tried, by bisection, since longer blocks mix less. A standard
    error is added to what is short. 1 if no longer block mixes well enough. Without labels it is half the number of
    minibatches in a fetch, by the rule b <= f / 2 of the scDataset poster.

    order_of: the order for a block size. labels: for each name, the codes of the rows of the order. fetch_rows: the
    number of rows in a fetch.
    """
    if not labels:
        return max(1, fetch_rows // batch_size // 2)
    wanted = [(codes, at_random(codes, batch_size) - within) for codes in labels.values()]

    def mixes(block_size: int) -> bool:
        order = order_of(block_size)
        entropies = ((mean_entropy(order, codes, batch_size), least) for codes, least in wanted)
        return all(mean - error >= least for (mean, error), least in entropies)

    lengths = sorted(k * 2**n for k in (2, 3) for n in range(fetch_rows.bit_length()) if k * 2**n <= fetch_rows)
    return [1, *lengths][bisect_left(lengths, True, key=lambda length: not mixes(length))]


def _labels(codes: np.ndarray) -> np.ndarray:
    """The codes from 1 on, int64, and 0 for a missing label."""
    return np.maximum(codes.astype(np.int64), -1) + 1


def _share_log2(n: np.ndarray, m: int) -> np.ndarray:
    """(n/m) log2(n/m) for each number in `n`; 0 for 0."""
    share = n / m
    return share * np.log2(share, where=n > 0, out=np.zeros(len(n)))


def _log_choose(n: np.ndarray | int, k: np.ndarray | int) -> np.ndarray:
    return gammaln(n + 1.0) - gammaln(k + 1.0) - gammaln(n - k + 1.0)
