"""One measurement: what a worker delivered under one condition."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from harness.condition import Condition, Timing

STATUSES = ("ok", "skipped", "failed", "timeout")
COLD_AT_MOST = 0.01
"""The largest share of a store that may be in the page cache when a cold condition begins."""


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """The window of one process under one condition, or the reason why there is none; null is "not measured", never 0.

    rows: cells delivered in `seconds`; windows: rows in each whole second; waiting_s: seconds of the window spent
    waiting for the next minibatch; fetches: rows / the loader's fetch_rows; epochs: how many epochs began within the
    window; resident_before, resident_after: share of the store in the page cache; marks: the contract's claims that
    the loader does not keep, each with the reason. ValueError for an unknown status, or "ok" without a window.
    """

    LATER: ClassVar = ("waiting_s",)

    condition: Condition
    timing: Timing
    repeat: int
    status: str
    reason: str | None = None
    marks: dict[str, str] = field(default_factory=dict)
    rows: int | None = None
    seconds: float | None = None
    windows: list[int] | None = None
    waiting_s: float | None = None
    epochs: int | None = None
    open_s: float | None = None
    first_batch_s: float | None = None
    fetches: float | None = None
    cpu_s: float | None = None
    peak_rss_bytes: int | None = None
    disk_read_bytes: int | None = None
    resident_before: float | None = None
    resident_after: float | None = None
    provenance: dict[str, Any] = field(default_factory=dict)
    schema: int = 1

    def __post_init__(self) -> None:
        if self.status not in STATUSES:
            raise ValueError(f"its status is {self.status!r}")
        if self.status == "ok" and not (self.rows and self.seconds and self.fetches):
            raise ValueError("it is ok, yet without rows, seconds or fetches")

    @property
    def cells_per_s(self) -> float | None:
        return self.rows / self.seconds if self.rows and self.seconds else None
