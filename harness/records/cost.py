"""The cost per cell of an operation, by the number of cells handled at once: a line of laws.jsonl for each number."""

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
"""The five phases of the law "ladder", numbered from 0: how SLAF's authors went from single cells to large pieces."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """The cost per cell of an operation that is done with `method` on `size` cells at once.

    law: the operation, "ranking", "shuffling", "reading" or "fitting"; or "ladder". For "ladder", `size` is the index
    of the phase in PHASES, not a number of cells. us_per_cell: microseconds per cell, one value for each repeat.
    """

    dataset: str
    law: str
    method: str
    size: int
    us_per_cell: list[float]
    provenance: dict[str, Any] = field(default_factory=dict)
    schema: int = 1
