"""Measures what tokenising a cell costs, beside reading it, on one core.

    python -m harness.experiments.tokenizing tahoe-mini

Prints microseconds a cell and millions of tokens a second without padding: reading alone, by our loader from files in
the page cache; encoding alone, of minibatches that are in memory; both together; and the aggregation and the tokenizer
of slafdb on the same cells, with the calls of its loader, if it is installed. Medians over repeats; in each repeat all
are measured one after another.
"""

import os
import time
from collections.abc import Callable, Sequence
from itertools import islice
from types import SimpleNamespace

import numpy as np
import scipy.sparse as sp

import loaders
from harness.data.dataset import Dataset
from harness.experiments.command import data_set
from loaders.slaf import MAX_GENES, Slaf
from loadstone import BlockLoader, BlockShuffling, open_h5ad
from loadstone.tokens import BinnedTokens, RankTokens, TokenBatch, Tokenized, vocabulary

REPEATS = 5
BATCH, BLOCK, FETCH, BATCHES = 64, 16, 16, 256
Way = Callable[[], int]
"""Handles all cells once, and returns the number of their tokens; 0 for reading alone."""


def main() -> None:
    dataset = data_set(__doc__)
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
    cells = [batch.x for batch in opened(dataset, None)]
    print(f"{len(cells) * BATCH:,} cells, one core, medians of {REPEATS} repeats\n")
    print("| what | us/cell | M tokens/s |\n| --- | ---: | ---: |")
    for name, (us_per_cell, tokens_per_s) in measured(ways(dataset, cells), len(cells) * BATCH).items():
        rate = f"{tokens_per_s / 1e6:,.1f}" if tokens_per_s else "–"
        print(f"| {name} | {us_per_cell:,.1f} | {rate} |")


def ways(dataset: Dataset, cells: Sequence[sp.csr_matrix]) -> dict[str, Way]:
    """By name, what is measured. cells: minibatches in memory."""
    genes = vocabulary(dataset.n_genes)
    encodings = {"geneformer": RankTokens(vocabulary=genes), "scgpt": BinnedTokens(vocabulary=genes)}
    compared: dict[str, Way] = {"reading": lambda: sum(0 for _ in opened(dataset, None))}
    for name, encoding in encodings.items():
        compared[f"{name}: encoding"] = lambda encoding=encoding: sum(count(encoding(x)) for x in cells)
        compared[f"{name}: reading and encoding"] = lambda encoding=encoding: sum(
            count(batch.x) for batch in opened(dataset, encoding)
        )
    if loaders.unavailable("slaf") is None:
        table, tokenizers = slafdb(cells)
        compared |= {
            f"{name}: slafdb's aggregation and tokenizer": lambda name=name: tokenised(tokenizers[name], table)
            for name in encodings
        }
    return compared


def measured(compared: dict[str, Way], n_cells: int) -> dict[str, tuple[float, float]]:
    """(microseconds a cell, tokens a second) by name: medians. Each way has run once before it is measured."""
    seconds: dict[str, list[float]] = {name: [] for name in compared}
    tokens = {name: way() for name, way in compared.items()}
    for _ in range(REPEATS):
        for name, way in compared.items():
            start = time.perf_counter()
            way()
            seconds[name].append(time.perf_counter() - start)
    medians = {name: float(np.median(values)) for name, values in seconds.items()}
    return {name: (median / n_cells * 1e6, tokens[name] / median) for name, median in medians.items()}


def opened(dataset: Dataset, encoding: RankTokens | BinnedTokens | None):
    """The first minibatches of an epoch in random order, encoded or as CSR."""
    source = open_h5ad(dataset.paths)
    loader = BlockLoader(
        source if encoding is None else Tokenized(source, encoding),
        sampler=BlockShuffling(BLOCK),
        batch_size=BATCH,
        fetch_factor=FETCH,
    )
    try:
        yield from islice((batch for batch in loader if batch.rows.shape[0] == BATCH), BATCHES)
    finally:
        loader.close()


def count(batch: TokenBatch) -> int:
    return int(np.count_nonzero(batch.mask))


def slafdb(cells: Sequence[sp.csr_matrix]):
    """(the table that slafdb's loader has read and shuffled, its tokenizers by name)."""
    with Slaf.importing():
        import polars as pl
        from slaf.ml.tokenizers import GeneformerTokenizer, ScGPTTokenizer

    whole = sp.vstack(cells, format="csr")
    table = pl.DataFrame(
        {
            "cell_integer_id": np.repeat(np.arange(whole.shape[0], dtype=np.uint32), np.diff(whole.indptr)),
            "gene_integer_id": whole.indices.astype(np.uint16),
            "value": whole.data.astype(np.uint16),
        }
    )
    genes = pl.DataFrame({"gene_id": [str(g) for g in range(whole.shape[1])]}).with_row_index("gene_integer_id")
    array = SimpleNamespace(var=SimpleNamespace(reset_index=lambda: genes), is_metadata_ready=lambda: True)
    kinds = {"geneformer": GeneformerTokenizer, "scgpt": ScGPTTokenizer}
    return table, {name: kind(array, max_genes=MAX_GENES[name]) for name, kind in kinds.items()}


def tokenised(tokenizer, table) -> int:
    """The number of tokens that slafdb makes of the table, with the calls and settings of its loader."""
    from slaf.core.tabular_schema import SLAF_LANCE_COO_SCHEMA

    grouped = tokenizer.window.apply(
        table, SLAF_LANCE_COO_SCHEMA, tokenizer.max_genes, n_expression_bins=10, use_binned_expressions=False
    )
    values = grouped["expr_sequence"].to_list() if "expr_sequence" in grouped.columns else None
    _, mask, _ = tokenizer.tokenize(gene_sequences=grouped["gene_sequence"].to_list(), expr_sequences=values)
    return int(mask.sum())


if __name__ == "__main__":
    main()
