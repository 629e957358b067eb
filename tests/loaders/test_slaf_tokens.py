"""How the tokens of slafdb differ from those of Geneformer and scGPT, cell by cell, and the rule of each difference.

The tokenizers of slaf 0.5.2, with the settings of its loader. docs/method.md has the lines of its code.
"""

from pathlib import Path

import anndata as ad
import numpy as np
import pytest
import scipy.sparse as sp

from harness.condition import Condition
from harness.data import catalogue
from harness.data.dataset import Dataset
from harness.experiments.tokenizing import slafdb
from loaders.slaf import Slaf
from loaders.tokens import encoding, open_loader
from loadstone.tokens import TokenBatch
from tests.conftest import skip_unless_available

CELLS, GENES = 40, 52_000  # more genes than the tokenizer's vocabulary of 50,000
VOCABULARY = 50_000
CLS, SEP, FIRST = 1, 2, 4
LONG = 2_500  # genes of every fourth cell, more than both encodings have room for


@pytest.fixture(scope="module", autouse=True)
def _installed() -> None:
    skip_unless_available("slaf")


@pytest.fixture(scope="module")
def counts() -> sp.csr_matrix:
    """Cells with 600 to 2,500 genes of counts from 1 to 40."""
    rng = np.random.default_rng(0)
    rows = [np.sort(rng.choice(GENES, LONG if i % 4 == 0 else 600 + 20 * i, replace=False)) for i in range(CELLS)]
    indptr = np.cumsum([0, *map(len, rows)])
    data = np.minimum(rng.geometric(0.3, indptr[-1]), 40).astype(np.float32)
    return sp.csr_matrix((data, np.concatenate(rows), indptr), (CELLS, GENES))


@pytest.fixture(scope="module")
def prepared(counts: sp.csr_matrix, tmp_path_factory: pytest.TempPathFactory) -> tuple[Dataset, Path]:
    folder = tmp_path_factory.mktemp("counts")
    ad.AnnData(counts).write_h5ad(folder / "x.h5ad")
    dataset, store = catalogue.load(str(folder)), tmp_path_factory.mktemp("slaf")
    Slaf.prepare(dataset, store, lambda _: None)
    return dataset, store


def condition(form: str) -> Condition:
    return Condition(dataset="x", loader="slaf", output="tokens", tokens=form, batch_size=16)


def tokens(prepared: tuple[Dataset, Path], form: str) -> TokenBatch:
    """The tokens of all cells, in the order of the cells."""
    loader = open_loader(Slaf, *prepared, condition(form), rows=True)
    try:
        batches = list(loader.epoch(0))
    finally:
        loader.close()
    order = np.argsort(np.concatenate([batch.rows for batch in batches]))
    return TokenBatch(
        *(
            None if parts[0] is None else np.concatenate(parts)[order]
            for parts in zip(*(batch.x for batch in batches), strict=True)
        )
    )


def genes_of(counts: sp.csr_matrix, cell: int) -> np.ndarray:
    return counts.indices[counts.indptr[cell] : counts.indptr[cell + 1]]


def test_its_ranks_are_genes_by_number_cut_before_they_are_ordered(prepared, counts: sp.csr_matrix) -> None:
    """Nothing is sorted by count. A cell that is too long loses its genes with the highest numbers, and its end."""
    theirs, ours = tokens(prepared, "geneformer"), encoding(condition("geneformer"), GENES)(counts)
    assert theirs.values is None
    assert theirs.ids.shape == ours.ids.shape == (CELLS, 2_048)
    np.testing.assert_array_equal(theirs.mask, ours.mask)
    for cell in range(CELLS):
        expected = np.concatenate([[CLS], genes_of(counts, cell) + FIRST, [SEP]])[:2_048]
        np.testing.assert_array_equal(theirs.ids[cell, theirs.mask[cell]], expected)
        same_genes = set(theirs.ids[cell, theirs.mask[cell]]) == set(ours.ids[cell, ours.mask[cell]])
        assert same_genes == (len(genes_of(counts, cell)) < LONG)
        assert (theirs.ids[cell] != ours.ids[cell]).any()


def test_its_bins_are_counts_and_genes_are_cut_by_number(prepared, counts: sp.csr_matrix) -> None:
    """1,026 tokens instead of 1,024. The values are the counts above the size of the vocabulary, without bins."""
    theirs, ours = tokens(prepared, "scgpt"), encoding(condition("scgpt"), GENES)(counts)
    assert (theirs.ids.shape, ours.ids.shape) == ((CELLS, 1_026), (CELLS, 1_024))
    for cell in range(CELLS):
        genes = genes_of(counts, cell)[:1_024]
        values = counts.data[counts.indptr[cell] :][: len(genes)]
        mask = theirs.mask[cell]
        np.testing.assert_array_equal(theirs.ids[cell, mask], [CLS, *(genes + FIRST), SEP])
        np.testing.assert_array_equal(theirs.values[cell, mask], [0, *(VOCABULARY + values), 0])
        if len(genes_of(counts, cell)) <= 1_022:
            np.testing.assert_array_equal(theirs.ids[cell, mask], ours.ids[cell, ours.mask[cell]])
    assert theirs.values.max() > VOCABULARY + 10
    assert ours.values.max() == 50


def test_genes_beyond_its_vocabulary_have_tokens_beyond_it(prepared) -> None:
    """`vocab_size` leaves out no gene, though its documentation says so."""
    for form in ("geneformer", "scgpt"):
        assert tokens(prepared, form).ids.max() >= VOCABULARY + FIRST


def test_its_bins_if_turned_on_are_binned_twice(counts: sp.csr_matrix) -> None:
    """As for its distributed loader: the numbers of bins are taken for values from 0 to 1. Two values are left."""
    from slaf.core.tabular_schema import SLAF_LANCE_COO_SCHEMA

    table, tokenizers = slafdb([counts])
    scgpt = tokenizers["scgpt"]
    grouped = scgpt.window.apply(table, SLAF_LANCE_COO_SCHEMA, 1_024, n_expression_bins=10, use_binned_expressions=True)
    bins = grouped["expr_sequence"].to_list()
    assert len(set(np.concatenate(bins))) > 2
    _, _, values = scgpt.tokenize(grouped["gene_sequence"].to_list(), bins)
    assert set(values.unique().tolist()) == {0, VOCABULARY + 9}
