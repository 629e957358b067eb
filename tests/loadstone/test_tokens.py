"""Tokens are those of a few plain lines, also through the loader; what cannot be encoded is an error."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from loadstone import BlockLoader, BlockShuffling, open_h5ad
from loadstone.tokens import BinnedTokens, RankTokens, TokenBatch, Tokenized, vocabulary
from tests import tiny
from tests.conftest import skip_unless_available
from tests.plain_tokens import binned, ranked, same

GENES = 30
KNOWN = np.where(np.arange(GENES) % 7 == 3, -1, np.arange(GENES)[::-1] + 10)  # some genes have no token

cells = st.lists(
    st.lists(st.sampled_from([0, 0, 0, 1, 1, 2, 3, 700, 70_000]), min_size=GENES, max_size=GENES),
    min_size=1,
    max_size=4,
)
special = st.fixed_dictionaries({"first": st.sampled_from([1, None]), "last": st.sampled_from([2, None])})


@given(cells, special, st.integers(3, 40), st.integers(0, 99))
@settings(max_examples=200)
def test_ranks_are_those_of_plain_lines(counts: list[list[int]], special: dict, length: int, seed: int) -> None:
    medians = None if seed % 2 else np.random.default_rng(seed).choice([0.5, 1, 1.7, 3], GENES)
    known = KNOWN if seed % 3 else vocabulary(GENES)
    tokens = RankTokens(vocabulary=known, medians=medians, length=length, **special)
    same(tokens(sp.csr_matrix(np.array(counts, np.float32))), [ranked(np.array(each), tokens) for each in counts])


@given(cells, special, st.integers(3, 40), st.integers(3, 60))
@settings(max_examples=200)
def test_bins_are_those_of_plain_lines(counts: list[list[int]], special: dict, length: int, bins: int) -> None:
    tokens = BinnedTokens(vocabulary=KNOWN, bins=bins, length=length, **special)
    same(tokens(sp.csr_matrix(np.array(counts, np.float32))), [binned(np.array(each), tokens) for each in counts])


@pytest.mark.parametrize("medians", [None, np.random.default_rng(1).uniform(0.1, 5, 3_000)])
def test_cells_of_many_genes_are_those_of_plain_lines(medians: np.ndarray | None) -> None:
    counts = (np.random.default_rng(2).lognormal(1, 2, (3, 3_000)) - 1).astype(np.int32).clip(0)
    x = sp.csr_matrix(counts.astype(np.float32))
    for length in (500, 4_000):
        ranks = RankTokens(vocabulary=vocabulary(3_000), medians=medians, length=length)
        same(ranks(x), [ranked(each, ranks) for each in counts])
        bins = BinnedTokens(vocabulary=vocabulary(3_000), length=length)
        same(bins(x), [binned(each, bins) for each in counts])


@pytest.mark.parametrize("kind", [RankTokens, BinnedTokens])
def test_genes_may_be_stored_in_any_order_and_with_zeros(kind: type) -> None:
    counts = np.array([3, 0, 5, 5, 1, 0, 2], np.float32)
    tokens = kind(vocabulary=vocabulary(7), length=9)
    order = np.array([6, 2, 5, 0, 3, 4])  # gene 5 with its 0
    stored = sp.csr_matrix((counts[order], order, [0, len(order)]), (1, 7))
    for part, expected in zip(tokens(stored), tokens(sp.csr_matrix(counts[None])), strict=True):
        np.testing.assert_array_equal(part, expected)


def test_a_loader_yields_tokens_of_its_rows(tiny_folder: Path) -> None:
    truth = tiny.truth()
    tokens = RankTokens(vocabulary=vocabulary(tiny.GENES), length=8)
    source = Tokenized(open_h5ad(sorted(tiny_folder.iterdir())), tokens)
    loader, seen = BlockLoader(source, sampler=BlockShuffling(4), batch_size=16, fetch_factor=4), []
    for batch in loader:
        same(batch.x, [ranked(truth[i], tokens) for i in batch.rows])
        seen += batch.rows.tolist()
    loader.close()
    assert sorted(seen) == list(range(tiny.N))


@pytest.mark.parametrize("kind", [RankTokens, BinnedTokens])
def test_a_cell_without_known_genes_has_the_special_tokens_alone(kind: type) -> None:
    counts = sp.csr_matrix(np.array([[0, 0, 0], [0, 4, 0], [1, 2, 3]], np.float32))
    batch = kind(vocabulary=np.array([5, -1, 7]), length=4)(counts)
    assert batch.ids[:2].tolist() == [[1, 2, 0, 0]] * 2
    assert batch.mask[:2].tolist() == [[True, True, False, False]] * 2
    assert sorted(batch.ids[2].tolist()) == [1, 2, 5, 7]
    assert kind(vocabulary=vocabulary(3))(sp.csr_matrix((0, 3), dtype=np.float32)).ids.shape[0] == 0


@pytest.mark.parametrize("workers", [0, 2])
def test_torch_gets_tokens_of_its_rows(tiny_folder: Path, workers: int) -> None:
    skip_unless_available("scdataset")  # torch
    from torch.utils.data import DataLoader

    from loadstone.torch import BlockDataset

    tokens = BinnedTokens(vocabulary=vocabulary(tiny.GENES), length=8)
    opened = partial(open_h5ad, sorted(tiny_folder.iterdir()), threads=1)
    dataset = BlockDataset(opened, tokens=tokens, batch_size=64, fetch_factor=2, labels={"odd": np.arange(tiny.N) % 2})
    batches = list(DataLoader(dataset, batch_size=None, num_workers=workers))
    assert sum(len(batch["rows"]) for batch in batches) == tiny.N
    for batch in batches:
        assert list(batch) == ["ids", "mask", "values", "rows", "odd"]
        parts = TokenBatch(*(batch[name].numpy() for name in ("ids", "mask", "values")))
        same(parts, [binned(tiny.truth()[i], tokens) for i in batch["rows"].tolist()])
    with pytest.raises(ValueError, match="two forms of a minibatch"):
        BlockDataset(opened, tokens=tokens, dense=True)


@pytest.mark.parametrize("value", [-1, 0.5, np.nan, np.inf])
@pytest.mark.parametrize("kind", [RankTokens, BinnedTokens])
def test_what_is_no_count_is_an_error(kind: type, value: float) -> None:
    x = sp.csr_matrix((np.array([1, value], np.float32), [0, 2], [0, 2]), (1, 3))
    with pytest.raises(ValueError, match=r"gene 2 of a cell has .*tokens are made from counts"):
        kind(vocabulary=vocabulary(3))(x)


@pytest.mark.parametrize("kind", [RankTokens, BinnedTokens])
def test_a_gene_twice_and_other_genes_are_errors(kind: type) -> None:
    twice = sp.csr_matrix((np.ones(3, np.float32), [2, 0, 2], [0, 3]), (1, 3))
    with pytest.raises(ValueError, match="a cell has gene 2 twice"):
        kind(vocabulary=vocabulary(3))(twice)
    with pytest.raises(ValueError, match="the cells have 3 genes, and the vocabulary 4"):
        kind(vocabulary=vocabulary(4))(twice)


@pytest.mark.parametrize(
    ("indices", "indptr", "message"),
    [
        ([0, 9], [0, 2], "a cell has gene 9, and there are 4"),
        ([0, -1], [0, 2], "gene -1"),
        ([0, 1], [0, 3], "not a valid"),
    ],
)
@pytest.mark.parametrize("kind", [RankTokens, BinnedTokens])
def test_a_matrix_that_is_not_valid_is_an_error(kind: type, indices: list, indptr: list, message: str) -> None:
    x = sp.csr_matrix((1, 4), dtype=np.float32)
    x.data, x.indices, x.indptr = np.ones(2, np.float32), np.array(indices, np.int32), np.array(indptr, np.int32)
    with pytest.raises(ValueError, match=message):
        kind(vocabulary=vocabulary(4))(x)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RankTokens(vocabulary=vocabulary(3), length=2), "no room for a gene"),
        (lambda: RankTokens(vocabulary=np.ones(3)), "one integer for each gene"),
        (lambda: RankTokens(vocabulary=vocabulary(3), medians=np.array([1, 0, 1])), "one number above 0"),
        (lambda: RankTokens(vocabulary=vocabulary(3), medians=np.ones(4)), "one number above 0"),
        (lambda: BinnedTokens(vocabulary=vocabulary(3), bins=2), "less than 3"),
        (lambda: RankTokens(vocabulary=vocabulary(3), pad=-1), "numbers from 0 on"),
        (lambda: RankTokens(vocabulary=vocabulary(3))(np.ones((1, 3))), "not ndarray: take output"),
    ],
)
def test_arguments_that_do_not_fit_are_errors(make, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
