"""SLAF's own experiments, repeated on its own format: lines of slaf-phases, slaf-operations and slaf-mixture.jsonl."""

from dataclasses import dataclass, field
from typing import Any

PHASES_FILE = "slaf-phases.jsonl"
OPERATIONS_FILE = "slaf-operations.jsonl"
MIXTURE_FILE = "slaf-mixture.jsonl"
PHASES = (
    "SQL for each cell, ranked by pandas",
    "SQL with a window function, for a minibatch",
    "rows taken by number, ranked by pandas",
    "rows taken by number, ranked by polars",
    "its loader: scanned, ranked and prefetched in large pieces",
)
"""The phases of SLAF's first post, numbered from 0: how its authors went from single cells to their loader."""


@dataclass(frozen=True, kw_only=True)
class Phase:
    """Tokenised cells out of SLAF's table, in the way of one phase.

    phase: its index in PHASES. cells: those that were delivered in `seconds`.
    """

    dataset: str
    phase: int
    repeat: int
    cells: int
    seconds: float
    provenance: dict[str, Any] = field(default_factory=dict)
    schema: int = 1


@dataclass(frozen=True, kw_only=True)
class Operation:
    """The cost of an operation on `size` units at once.

    operation: "ranking" or "shuffling", of which a unit is a cell, or "reading", of which `size` counts batches of
    Lance and a unit is a row. us_per_unit: microseconds, one value for each repeat.
    """

    dataset: str
    operation: str
    method: str
    size: int
    us_per_unit: list[float]
    provenance: dict[str, Any] = field(default_factory=dict)
    schema: int = 1


@dataclass(frozen=True, kw_only=True)
class Mixture:
    """One epoch of SLAF's loader, of minibatches of `batch_size` cells.

    fragment_cells: the cells of a fragment of the store. n_scanners: None for the sequential order, without a mixture.
    cells, seconds: of the whole epoch, from the creation of the loader to its last cell. within_cells, across_cells:
    the mean distance between the numbers of two cells of a minibatch, and between those of a cell and one of the
    minibatch after. bits: the mean entropy of each label in a full minibatch; random_bits: that of random cells.
    """

    dataset: str
    fragment_cells: int
    n_scanners: int | None
    repeat: int
    batch_size: int
    cells: int
    seconds: float
    within_cells: float
    across_cells: float
    bits: dict[str, float]
    random_bits: dict[str, float]
    provenance: dict[str, Any] = field(default_factory=dict)
    schema: int = 1
