"""Opens loaders, and makes tokens of the cells of those whose libraries have no tokenizer.

With the output "tokens", the x of a batch is a `loadstone.tokens.TokenBatch`, whose rows are those of the cells:

ids     int64 (cells, length): the token of each gene, `vocabulary(n_genes)`, which are the numbers from 4 on; 1 before
        the genes, 2 behind them, and 0 for padding behind these
mask    bool (cells, length), True for a token and False for padding
values  int64 (cells, length), the bin of each gene, 0 elsewhere; None for an encoding without values

"geneformer": genes by falling count, no values, length 2,048. "scgpt": genes in their order, counts in 51 bins, length
1,024. Of a cell with more genes the highest counts are kept. An adapter with `tokenises` may have other lengths, tokens
and rules: those of its library.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Union

from harness.condition import Condition
from harness.data.dataset import Dataset
from loaders.convert import OF_NUMBA
from loaders.protocol import Batch, Loader

if TYPE_CHECKING:
    from loadstone.tokens import BinnedTokens, RankTokens

IMPORTS = ("loadstone.tokens", *OF_NUMBA)
"""What a worker imports, beside the modules of an adapter, for the output "tokens"."""


def encoding(condition: Condition, n_genes: int) -> Union["RankTokens", "BinnedTokens"]:
    """The encoding that the condition names, for cells with `n_genes` genes, at its usual length."""
    from loadstone.tokens import BinnedTokens, RankTokens, vocabulary

    kind = {"geneformer": RankTokens, "scgpt": BinnedTokens}[condition.tokens]
    return kind(vocabulary=vocabulary(n_genes))


def open_loader(adapter: type[Loader], dataset: Dataset, path: Path, condition: Condition, *, rows: bool) -> Loader:
    """Opens a loader; arguments and errors are those of `Loader.open`. Workers and tests open loaders only with this.

    A loader that does not make tokens itself is opened with the output "csr".
    """
    if condition.output != "tokens" or getattr(adapter, "tokenises", False):
        return adapter.open(dataset, path, condition, rows=rows)
    loader = adapter.open(dataset, path, replace(condition, output="csr", tokens=None), rows=rows)
    return Encoded(loader, condition, dataset.n_genes)


class Encoded:
    """A loader whose minibatches are encoded when they are taken, in the process and thread that takes them.

    ValueError for cells whose values are no counts.
    """

    def __init__(self, loader: Loader, condition: Condition, n_genes: int) -> None:
        self.loader, self.tokens = loader, encoding(condition, n_genes)
        self.fetch_rows = loader.fetch_rows

    def epoch(self, index: int) -> Iterator[Batch]:
        for x, rows in self.loader.epoch(index):
            yield Batch(self.tokens(x), rows)

    def close(self) -> None:
        self.loader.close()
