"""The cost of making a loader's store: a line of conversions.jsonl."""

from dataclasses import dataclass, field
from typing import Any

FILE = "conversions.jsonl"


@dataclass(frozen=True, kw_only=True)
class Conversion:
    """One conversion of a data set into a loader's store, or the reason why it failed; None is "not measured".

    The provenance holds the data set's fingerprint and the size of the store in bytes.
    """

    dataset: str
    loader: str
    store: str
    status: str
    reason: str | None = None
    seconds: float | None = None
    peak_rss_bytes: int | None = None
    provenance: dict[str, Any] = field(default_factory=dict)
    schema: int = 1
