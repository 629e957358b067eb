"""The protocol of adapters. An adapter converts data sets, opens a store, and iterates over its minibatches.

An adapter must not measure time, seed global generators, print, or change settings.
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

    from loadstone.tokens import TokenBatch

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
"""The claims that the contract tests assert for every loader: name and meaning. `Loader.broken` declares exceptions."""


class Batch(NamedTuple):
    """One minibatch.

    x: (rows, n_genes), float32, in CPU memory: a CSR matrix, or a dense array or tensor; never a lazy view. With the
    output "tokens" a `TokenBatch` instead, in CPU memory, which `loaders.tokens` describes.
    rows: (rows,) int64, the positions of the cells in the concatenation of the data set's files; None if the loader
    was opened with rows=False.
    """

    x: Union["csr_matrix", np.ndarray, "torch.Tensor", "TokenBatch"]
    rows: np.ndarray | None


class Incompatible(Exception):  # noqa: N818 - an answer, not an error
    """Raised by an adapter that does not support a condition or a data set. The message is the reason.

    The harness prints the message after "LOADER cannot honour this condition: ".
    """


class Loader(Protocol):
    """A loader under test.

    A complete adapter of an imaginary library `acme`, which reads h5ad files without conversion (loaders/acme.py):

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

    The line `"acme": "loaders.acme:Acme"` in `loaders.NAMES` registers it, so that it is tested, measured and shown in
    the figures. This command runs its tests: `pytest tests/loaders/test_contract.py -k acme`.
    """

    name: ClassVar[str]  # the name on the command line, in the records, and of the dependency group in pyproject.toml
    imports: ClassVar[tuple[str, ...]]
    """The modules that opening the store and reading it would import, the library itself first. The worker imports
    them before any clock runs; the parent process finds them without importing them."""
    store: ClassVar[str]  # the format on disk and its version: "h5ad/1", "zarr-sharded/1"
    knobs: ClassVar[Mapping[str, object]]  # the loader's own parameters, with the defaults that its authors recommend
    objects: ClassVar[
        bool
    ]  # optional: True if it reads from `dataset.urls` or `dataset.url(path)`, if there is a bucket
    keeps_copies: ClassVar[bool]  # optional: True if it keeps what it reads from a bucket in files, to read them later
    tokenises: ClassVar[bool]  # optional: True if it makes tokens itself; see `loaders.tokens` for the others
    in_memory: ClassVar[bool]  # optional: True if it holds all cells while open; its ceiling is copying only

    @classmethod
    def broken(cls, condition: Condition) -> Mapping[str, str]:
        """The CLAIMS that do not hold under this condition, as {name: reason}; {} if all hold."""

    @classmethod
    def importing(cls) -> AbstractContextManager[None]:
        """A context in which to import the modules of `imports`, for a library that must be configured before its
        import. Optional."""

    @classmethod
    def prepare(cls, dataset: Dataset, path: Path, progress: Callable[[int], None]) -> None:
        """Writes the store into the empty folder `path`, and calls `progress` with the number of cells written so far.

        Only loaders whose `store` is not UNCONVERTED have this method. It is called once per data set. If it raises,
        the caller deletes the folder. The arguments of `progress` must be ascending ints; the last is
        `dataset.n_cells`. Raises Incompatible for a data set that the loader cannot convert.
        """

    @classmethod
    def open(cls, dataset: Dataset, path: Path, condition: Condition, *, rows: bool) -> Self:
        """Opens the store at `path`, or the files `dataset.paths` if `store` is UNCONVERTED.

        rows: whether batches carry row ids. Raises Incompatible for a condition that the loader does not support. This
        method imports the library; importing the adapter's module must not. The output of the condition is "tokens"
        only if the class has `tokenises`.
        """

    @classmethod
    def ceiling(cls, dataset: Dataset, path: Path, seconds: float) -> dict[str, object]:
        """Upper bounds on the throughput with this store. Each is measured for at least `seconds`, one thread per core.

        Returns a dict with three keys. decode_cells_per_s: the rate of decoding alone; None if the store has no chunks,
        and so is not compressed. copy_cells_per_s: the rate of copying alone, a dict by output, "csr" and "dense".
        piece_bytes: the mean size in bytes of a stored chunk of values or, if there are no chunks, of the values of one
        cell. Optional: only for loaders whose store can be decoded and whose cells can be copied without the loader.
        """

    @classmethod
    def code(cls, dataset: Dataset, path: Path, condition: Condition) -> str:
        """The source code of a Python program that reads the data with the settings of the condition.

        The program uses only the library's own API and not the harness. It reads labels too, and contains the loop
        `for epoch in range(10)`. This method is optional.
        """

    def epoch(self, index: int) -> Iterator[Batch]:
        """Iterates over the minibatches of epoch `index`, in an order that depends only on (condition.seed, index).

        The caller passes 0, 1, 2, ... in turn, and exhausts or drops each iterator before the next call.
        """

    @property
    def fetch_rows(self) -> int:
        """The number of rows per fetch of one process. The batches of a fetch arrive in a burst."""

    def close(self) -> None:
        """Releases files, threads and processes. It may be called in the middle of an epoch."""
