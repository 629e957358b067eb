"""Runs of a fleet in which producers are killed while a consumer reads: a line of fleet-kills.jsonl for each run."""

from dataclasses import dataclass, field
from typing import Any

FILE = "fleet-kills.jsonl"


@dataclass(frozen=True, kw_only=True)
class Kills:
    """The moments at which the fetches of a consumer arrived, and at which a producer was killed.

    producers: the number at the start; Ray starts one that was killed again. ttfb_ms, connection_mbps: of the bucket
    from which they read, as of a Condition. arrivals_s: the seconds from the first arrival to that of each fetch, so
    that the first is 0; cells: of each fetch. kills_s: of each kill, from the first arrival.
    """

    dataset: str
    producers: int
    ttfb_ms: float
    connection_mbps: float
    arrivals_s: list[float]
    cells: list[int]
    kills_s: list[float]
    provenance: dict[str, Any] = field(default_factory=dict)
    schema: int = 1
