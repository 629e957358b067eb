"""SLAF's five phases and three laws, by the operations that its first post describes, on its own table.

    python -m harness.experiments.slaf.phases tahoe-mini

A phase is a way to get Geneformer's tokens of minibatches of 32 cells out of the table. Phases 0 to 3 read runs of 32
consecutive cells from places drawn at random, the same for all; phase 4 is the library's loader, which reads in order.
The laws are the costs of ranking, of shuffling and of reading by the number of cells, or batches, at once.

What is not as in the post: no worker processes in phase 0, since a query already takes all cores. The post's query of
phase 1 is no SQL (it has LIMIT inside OVER); here the limit is a filter. The library's own search for the rows of a
cell sorts all cells in each call, so phases 2 and 3 use the column `cell_start_index` of obs as their index.

Records are appended to slaf-phases.jsonl and slaf-operations.jsonl. About 4 minutes.
"""

import random
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from harness.data.dataset import Dataset
from harness.experiments.slaf import table
from harness.experiments.slaf.operations import operations
from harness.records import jsonl, slaf
from harness.records.slaf import PHASES, Operation, Phase
from harness.run.provenance import of_store, provenance
from loaders.slaf import fragment_cells

BATCH, MAX_GENES = 32, 2_048
BATCHES_PER_CHUNK = 50  # of the loader of phase 4, as the post has it
OPERATION_S = 0.2  # an operation is repeated for so long, and its mean cost recorded
ONE_CELL = "SELECT cell_integer_id, gene_integer_id, value FROM dataset WHERE cell_integer_id = {first}"
WINDOW = """
WITH ranked_genes AS (
    SELECT cell_integer_id, gene_integer_id,
        ROW_NUMBER() OVER (PARTITION BY cell_integer_id ORDER BY value DESC, gene_integer_id ASC) AS gene_rank
    FROM dataset WHERE cell_integer_id BETWEEN {first} AND {last}
)
SELECT cell_integer_id, gene_integer_id FROM ranked_genes WHERE gene_rank <= {max_genes}
ORDER BY cell_integer_id, gene_rank
"""

Sequences = list[Sequence[int]]
"""The numbers of the genes of each cell that has counts, in ascending order of the cells."""


class Phases:
    """The phases over one opened table.

    starts: the first row of each cell, and the number of rows: int64, shape (n + 1,).
    """

    def __init__(self, array: Any) -> None:
        from slaf.ml.tokenizers import GeneformerTokenizer

        self.array, self.table = array, array.expression
        self.starts = np.append(array.obs["cell_start_index"].to_numpy().astype(np.int64), self.table.count_rows())
        self.n_cells = len(self.starts) - 1
        self.tokenizer = GeneformerTokenizer(array, max_genes=MAX_GENES)

    def sequences(self, phase: int, first: int) -> Sequences:
        """The genes of the cell `first` (phase 0), or of BATCH cells from it on (phases 1 to 3)."""
        return (self.sql_for_a_cell, self.sql_window, self.take_pandas, self.take_polars)[phase](first)

    def sql_for_a_cell(self, first: int) -> Sequences:
        return ranked_by_pandas(self._sql(ONE_CELL.format(first=first)).to_pandas())

    def sql_window(self, first: int) -> Sequences:
        import polars as pl

        last = min(first + BATCH, self.n_cells) - 1
        rows = pl.from_arrow(self._sql(WINDOW.format(first=first, last=last, max_genes=MAX_GENES)))
        return rows.group_by("cell_integer_id", maintain_order=True).all()["gene_integer_id"].to_list()

    def take_pandas(self, first: int) -> Sequences:
        return ranked_by_pandas(self._take(first).to_pandas())

    def take_polars(self, first: int) -> Sequences:
        import polars as pl
        from slaf.core.tabular_schema import SLAF_LANCE_COO_SCHEMA

        rows = pl.from_arrow(self._take(first))
        return self.tokenizer.window.apply(rows, SLAF_LANCE_COO_SCHEMA, MAX_GENES)["gene_sequence"].to_list()

    def _sql(self, query: str) -> Any:
        import pyarrow as pa

        built = self.table.sql(query).build()
        return pa.Table.from_batches(built.to_batch_records())

    def _take(self, first: int) -> Any:
        last = min(first + BATCH, self.n_cells)
        return self.table.take(np.arange(self.starts[first], self.starts[last]))

    def read(self, phase: int, firsts: Iterator[int], window_s: float) -> tuple[int, float]:
        """(cells, seconds) of one phase that goes on for about `window_s`. firsts: where a minibatch starts."""
        if phase == len(PHASES) - 1:
            return self._prefetch(window_s)
        self._tokens(phase, next(firsts))
        cells, start = 0, time.perf_counter()
        while (passed := time.perf_counter() - start) < window_s:
            cells += self._tokens(phase, next(firsts))
        return cells, passed

    def _tokens(self, phase: int, first: int) -> int:
        sequences = self.sequences(phase, first)
        return len(self.tokenizer.tokenize(sequences)[0]) if sequences else 0

    def _prefetch(self, window_s: float) -> tuple[int, float]:
        """The library's loader from its first minibatch on, for at most one epoch, at whose end it would wait."""
        from slaf.ml.dataloaders import SLAFDataLoader

        with_counts = np.count_nonzero(np.diff(self.starts))
        loader = SLAFDataLoader(
            self.array, batch_size=BATCH, max_genes=MAX_GENES, verbose=False, use_mixture_of_scanners=False,
            by_fragment=False, batches_per_chunk=BATCHES_PER_CHUNK,
        )  # fmt: skip
        try:
            batches = iter(loader)
            first, start, cells = len(next(batches)["cell_ids"]), time.perf_counter(), 0
            for batch in batches:
                cells += len(batch["cell_ids"])
                if (passed := time.perf_counter() - start) >= window_s or first + cells >= with_counts:
                    return cells, passed
        finally:
            table.stop(loader)
        raise RuntimeError("the library ended an epoch early")


def ranked_by_pandas(rows: Any) -> Sequences:
    """The post's ranking: the dense rank of each count within its cell, up to MAX_GENES.

    As in the library, genes stay in the order of the table: the rank only selects them.
    """
    rows["gene_rank"] = rows.groupby("cell_integer_id")["value"].rank(method="dense", ascending=False)
    rows = rows[rows["gene_rank"] <= MAX_GENES]
    return [genes.to_numpy() for _, genes in rows.groupby("cell_integer_id")["gene_integer_id"]]


def measure(dataset: Dataset, options: Namespace) -> None:
    """Measures all phases and operations, in another random order in each repeat, and appends the records."""
    store = table.store_of(dataset, fragment_cells(dataset), options.results)
    phases = Phases(table.opened(store))
    facts = provenance("slaf", dataset) | of_store(sorted(path for path in store.rglob("*") if path.is_file()))
    shuffled = random.Random(0)
    works = operations(phases.array, phases.starts)
    costs: dict[tuple[str, str, int], list[float]] = {key: [] for key in works}
    for repeat in range(options.repeats):
        for phase in shuffled.sample(range(len(PHASES)), len(PHASES)):
            cells, passed = phases.read(phase, places(phases.n_cells, repeat), options.seconds)
            if cells:
                run = Phase(
                    dataset=dataset.name, phase=phase, repeat=repeat, cells=cells, seconds=passed, provenance=facts
                )  # fmt: skip
                jsonl.append(options.results / slaf.PHASES_FILE, run)
            table.note(f"repeat {repeat}, phase {phase}: {cells / passed:,.1f} cells/s")
        for key in shuffled.sample(list(works), len(works)):
            costs[key].append(us_per_unit(works[key]))
        table.note(f"repeat {repeat}: {len(works)} costs")
    for (operation, method, size), us in costs.items():
        record = Operation(
            dataset=dataset.name, operation=operation, method=method, size=size, us_per_unit=us, provenance=facts
        )  # fmt: skip
        jsonl.append(options.results / slaf.OPERATIONS_FILE, record)


def places(n_cells: int, repeat: int) -> Iterator[int]:
    """First cells of minibatches, multiples of BATCH, at random. Two phases of a repeat get the same ones."""
    rng = np.random.default_rng(repeat)
    while True:
        yield BATCH * int(rng.integers(-(-n_cells // BATCH)))


def us_per_unit(work: Callable[[], int]) -> float:
    """Microseconds for each unit of `work`, which returns how many it did, repeated for OPERATION_S."""
    work()
    units, start = 0, time.perf_counter()
    while (passed := time.perf_counter() - start) < OPERATION_S:
        units += work()
    return passed / units * 1e6


def main(arguments: Sequence[str] | None = None) -> int:
    top = table.parser("harness.experiments.slaf.phases", __doc__)
    top.add_argument("--repeats", type=table.positive, default=5, metavar="N", help="(default: 5)")
    top.add_argument(
        "--seconds", type=table.seconds, default=4.0, metavar="S", help="of each phase in each repeat (default: 4)"
    )  # fmt: skip
    return table.run(top, arguments, measure)


if __name__ == "__main__":
    sys.exit(main())
