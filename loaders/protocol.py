"""The protocol of an adapter: it opens a store, iterates over minibatches and converts data sets.

An adapter does not measure time, seed global generators, print, or change settings.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol, Self, Union

import numpy as np

from harness.condition import Condition
from harness.data.dataset import Dataset

if TYPE_CHECKING:
    import torch
    from scipy.sparse import csr_matrix

UNCONVERTED = "h5ad/1"
"""The value of `store` for a loader that reads the h5ad files of the data set without conversion."""

CLAIMS = {
    "delivers": "an epoch runs to its end",
    "exact": "an epoch holds each cell once",
    "rows": "the row ids of a batch are those of its cells",
    "seeded": "the same seed and epoch give the same order",
    "reshuffled": "two epochs with the same seed differ",
    "batches": "all batches of an epoch but one have the requested size",
}
"""Name and meaning of what the contract tests require of every loader; `Loader.broken` names the exceptions."""


class Batch(NamedTuple):
    """One minibatch.

    x: (rows, n_genes), float32, in CPU memory: a CSR matrix, or a dense array or tensor; never a lazy view.
    rows: (rows,) int64, the positions of the cells in the concatenation of the data set's files; None if the loader
    was opened with rows=False.
    """

    x: Union["csr_matrix", np.ndarray, "torch.Tensor"]
    rows: np.ndarray | None


class Incompatible(Exception):  # noqa: N818 - an answer, not an error
    """The loader cannot honour a condition. The message is the reason, and follows "cannot honour this condition: "."""


class Loader(Protocol):
    """A loader under test.

    A complete adapter of an imaginary library `acme`, which reads h5ad files as they are (loaders/acme.py):

        import numpy as np

        from loaders.convert import to_output
        from loaders.protocol import UNCONVERTED, Batch, Incompatible


        class Acme:
            name = "acme"
            imports = ("acme",)
            store = UNCONVERTED
            knobs = {"buffer_cells": 1024}

            @classmethod
            def broken(cls, condition):
                return {}

            @classmethod
            def open(cls, dataset, path, condition, *, rows):
                if condition.workers:
                    raise Incompatible("acme has no worker processes")
                return cls(dataset, condition, rows)

            def __init__(self, dataset, condition, rows):
                import acme

                self.condition, self.rows = condition, rows
                self.fetch_rows = (self.knobs | dict(condition.knobs))["buffer_cells"]
                self.reader = acme.open(dataset.paths, buffer_cells=self.fetch_rows)

            def epoch(self, index):
                rng = np.random.default_rng([self.condition.seed, index])
                shuffle = rng if self.condition.order == "random" else None
                for x, ids in self.reader.batches(self.condition.batch_size, shuffle):
                    yield Batch(to_output(x, self.condition.output), ids if self.rows else None)

            def close(self):
                self.reader.close()

    To have it tested, measured and drawn, add the line `"acme": "loaders.acme:Acme"` to `loaders.NAMES`. Its tests:
    `pytest tests/loaders/test_contract.py -k acme`.
    """

    name: ClassVar[str]  # the name on the command line, in the records, and of the dependency group in pyproject.toml
    imports: ClassVar[tuple[str, ...]]
    """The modules that opening the store and reading it would import, the library itself first. The worker imports
    them before any clock runs; the parent process finds them without importing them."""
    store: ClassVar[str]  # the format on disk and its version: "h5ad/1", "zarr-sharded/1"
    knobs: ClassVar[Mapping[str, object]]  # the loader's own parameters, with the defaults that its authors recommend
    in_memory: ClassVar[bool]  # optional: True if it holds all cells while open; then it is not compared

    @classmethod
    def broken(cls, condition: Condition) -> Mapping[str, str]:
        """The CLAIMS that do not hold under this condition, each with the reason; {} if all hold."""

    @classmethod
    def importing(cls) -> AbstractContextManager[None]:
        """A context in which to import the modules of `imports`, for a library that must be configured before its
        import. Optional."""

    @classmethod
    def prepare(cls, dataset: Dataset, path: Path, progress: Callable[[int], None]) -> None:
        """Writes the store into the empty folder `path`, and calls `progress` with the number of cells written so far.

        Only loaders whose `store` is not UNCONVERTED have this method. It is called once per data set, and the caller
        keeps the store only if it is complete. `progress` gets ints in ascending order, and `dataset.n_cells` last.
        """

    @classmethod
    def open(cls, dataset: Dataset, path: Path, condition: Condition, *, rows: bool) -> Self:
        """Opens the store at `path`, or the files `dataset.paths` if `store` is UNCONVERTED.

        rows: whether batches carry row ids. Raises Incompatible for a condition that the loader cannot honour. The
        library is imported here, not when the adapter's module is imported.
        """

    @classmethod
    def ceiling(cls, dataset: Dataset, path: Path, seconds: float) -> dict[str, object]:
        """Upper bounds on the throughput with this store, each measured for `seconds` with one thread per core.

        Returns a dict of decode_cells_per_s (None if the store is not compressed), copy_cells_per_s (a dict by output),
        and piece_bytes, the mean size of a chunk of values on disk or, if the store is not compressed, of the values of
        a cell. Optional: for loaders that can decode their store and copy its cells separately.
        """

    @classmethod
    def code(cls, dataset: Dataset, path: Path, condition: Condition) -> str:
        """The source of a Python program that reads the data with the settings of the condition, without the harness.

        The program uses the library's own API, reads labels too, and has the loop `for epoch in range(10)`. Optional.
        """

    def epoch(self, index: int) -> Iterator[Batch]:
        """One pass over the cells, in an order that is a function of (condition.seed, index).

        It is called with 0, 1, 2, ... in turn; each iterator is exhausted or dropped before the next call.
        """

    @property
    def fetch_rows(self) -> int:
        """The number of rows per fetch: batches arrive in bursts of this many rows."""

    def close(self) -> None:
        """Releases files, threads and processes. It may be called in the middle of an epoch."""
