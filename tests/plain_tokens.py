"""The encodings of `loadstone.tokens` in plain lines, cell by cell, as an oracle of tests."""

from fractions import Fraction

import numpy as np

from loadstone.tokens import BinnedTokens, RankTokens, TokenBatch


def genes_of(counts: np.ndarray, tokens: RankTokens | BinnedTokens) -> list[int]:
    return [g for g in range(len(counts)) if counts[g] > 0 and tokens.vocabulary[g] >= 0]


def row(genes: list[int], values: list[int], tokens: RankTokens | BinnedTokens) -> tuple[list, list, list]:
    """(ids, mask, values) of a cell with these genes."""
    before, after = ([] if token is None else [token] for token in (tokens.first, tokens.last))
    ids = before + [int(tokens.vocabulary[g]) for g in genes] + after
    padding = tokens.length - len(ids)
    values = [0] * len(before) + values + [0] * (len(after) + padding)
    return ids + [tokens.pad] * padding, [True] * len(ids) + [False] * padding, values


def ranked(counts: np.ndarray, tokens: RankTokens) -> tuple[list, list, list]:
    genes = genes_of(counts, tokens)
    medians = np.ones(len(counts), np.float32) if tokens.medians is None else tokens.medians
    genes.sort(key=lambda g: -(np.float32(counts[g]) / medians[g]))  # stable: equal ones by gene
    return row(genes[: tokens.most], [0] * min(len(genes), tokens.most), tokens)


def binned(counts: np.ndarray, tokens: BinnedTokens) -> tuple[list, list, list]:
    genes = genes_of(counts, tokens)
    ordered = sorted(int(counts[g]) for g in genes)

    def quantile(j: int) -> Fraction:
        place = Fraction(j * (len(ordered) - 1), tokens.bins - 2)
        below, above = ordered[int(place)], ordered[min(int(place) + 1, len(ordered) - 1)]
        return below + (above - below) * (place - int(place))

    kept = sorted(sorted(genes, key=lambda g: -counts[g])[: tokens.most])
    edges = [quantile(j) for j in range(tokens.bins - 1)] if genes else []
    return row(kept, [sum(edge <= counts[g] for edge in edges) for g in kept], tokens)


def same(batch: TokenBatch, expected: list[tuple[list, list, list]]) -> None:
    ids, mask, values = (np.array(part) for part in zip(*expected, strict=True))
    np.testing.assert_array_equal(batch.ids, ids)
    np.testing.assert_array_equal(batch.mask, mask)
    if batch.values is not None:
        np.testing.assert_array_equal(batch.values, values)
