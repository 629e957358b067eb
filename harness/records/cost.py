"""The cost of a cell by the number of cells handled at once: a line of laws.jsonl for each number."""

from dataclasses import dataclass, field
from typing import Any

FILE = "laws.jsonl"
PHASES = (
    "a cell at a time, each ranked by pandas",
    "a minibatch of cells at a time, ranked by pandas",
    "the same, read by our own gather",
    "the same, ranked by polars",
    "blocks of 16 in buffers of 16,384, ranked compiled",
)
"""The phases of the law "ladder", by number: how SLAF's authors went from single cells to large pieces."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """The cost of an operation by `method` on `size` cells at once.

    law: the operation, "ranking", "shuffling", "reading" or "fitting"; or "ladder", with which `size` is the number of
    a phase. us_per_cell: microseconds per cell, of each repeat.
    """

    dataset: str
    law: str
    method: str
    size: int
    us_per_cell: list[float]
    provenance: dict[str, Any] = field(default_factory=dict)
    schema: int = 1
