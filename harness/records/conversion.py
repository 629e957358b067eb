"""The cost of making a loader's store: a line of conversions.jsonl."""

from dataclasses import dataclass, field
from typing import Any

FILE = "conversions.jsonl"


@dataclass(frozen=True, kw_only=True)
class Conversion:
    """One conversion of a data set; null is "not measured". The data set's fingerprint is in the provenance."""

    dataset: str
    loader: str
    store: str
    status: str
    reason: str | None = None
    seconds: float | None = None
    peak_rss_bytes: int | None = None
    provenance: dict[str, Any] = field(default_factory=dict)
    schema: int = 1
