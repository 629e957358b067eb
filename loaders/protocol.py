"""What an adapter is: it opens, iterates and converts. It never times, seeds globally, prints or adjusts."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol, Self, Union

import numpy as np

from harness.condition import Condition
from harness.data.dataset import Dataset

if TYPE_CHECKING:
    import torch
    from scipy.sparse import csr_matrix

UNCONVERTED = "h5ad/1"
"""The store of a loader that reads the data set's own files; nothing is prepared for it."""

CLAIMS = {
    "delivers": "an epoch runs to its end",
    "exact": "an epoch holds each cell once",
    "rows": "the row ids name the cells they come with",
    "seeded": "the same seed and epoch give the same order",
    "reshuffled": "two epochs of one seed differ",
    "batches": "every batch of an epoch but one has the size asked for",
}
"""What every loader is held to, by the contract tests; `Loader.broken` names the exceptions."""


class Batch(NamedTuple):
    """One minibatch, materialised.

    x: (rows, n_genes), float32, on the CPU: a CSR matrix, or a dense array or tensor; never a lazy view.
    rows: (rows,) int64 ids into the concatenation of the data set's files; None when opened with rows=False.
    """

    x: Union["csr_matrix", np.ndarray, "torch.Tensor"]
    rows: np.ndarray | None


class Incompatible(Exception):  # noqa: N818 - it is an answer, not an error
    """A condition this loader cannot honour; the message completes "cannot honour this condition because"."""


class Loader(Protocol):
    """A loader under test.

    An adapter of a library `acme` that reads the files as they are, whole:

        class Acme:
            name = "acme"
            imports = ("acme",)
            store = UNCONVERTED
            knobs = {"buffer": 1024}

            @classmethod
            def open(cls, dataset, path, condition, *, rows):
                if condition.workers:
                    raise Incompatible("acme has no worker processes")
                ...

    One more line in `loaders.NAMES` and it is tested, timed and drawn.
    """

    name: ClassVar[str]  # the command line's name, the results' key and the dependency group of pyproject.toml
    imports: ClassVar[tuple[str, ...]]  # modules that the group brings; looked for, never imported, by the parent
    store: ClassVar[str]  # on-disk format and version: "h5ad/1", "zarr-sharded/1"
    knobs: ClassVar[Mapping[str, object]]  # its own parameters, with the defaults its authors recommend
    in_memory: ClassVar[bool]  # optional: it holds all cells once it is open, and so is no rival of the others

    @classmethod
    def broken(cls, condition: Condition) -> Mapping[str, str]:
        """The CLAIMS it cannot make under this condition, each with the reason; {} for a sound loader."""

    @classmethod
    def prepare(cls, dataset: Dataset, path: Path, progress: Callable[[int], None]) -> None:
        """Writes its store into the empty folder `path`, calling `progress(cells done)`.

        Called only where `store` is not UNCONVERTED; the caller makes it atomic and calls it once.
        """

    @classmethod
    def open(cls, dataset: Dataset, path: Path, condition: Condition, *, rows: bool) -> Self:
        """Opens the store at `path` (of no meaning where it is UNCONVERTED: the data set names its files).

        Raises Incompatible for a condition it cannot honour. The library is imported here, not with the module.
        """

    @classmethod
    def ceiling(cls, dataset: Dataset, path: Path, seconds: float) -> dict[str, object]:
        """The rates that a store allows, each measured for `seconds` with one thread a core: decode_cells_per_s
        (None where nothing is compressed), copy_cells_per_s by output; and piece_bytes, the size of a chunk on disk.

        Optional: for loaders that can decode their store, and copy its cells, without doing anything else.
        """

    @classmethod
    def code(cls, dataset: Dataset, path: Path, condition: Condition) -> str:
        """A program for a user: the library's own API with the settings of the condition, no harness, and labels.

        Optional; it reads minibatches in a loop called `for epoch in range(10)`.
        """

    def epoch(self, index: int) -> Iterator[Batch]:
        """One pass over the cells, in an order that is a function of (condition.seed, index).

        Called with 0, 1, 2, ... in turn, each pass finished or dropped before the next begins.
        """

    @property
    def fetch_rows(self) -> int:
        """Rows brought in per read: batches arrive in bursts of this many."""

    def close(self) -> None:
        """Frees files, threads and processes; may be called in mid-epoch."""
