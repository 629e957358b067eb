"""One measurement: what a worker delivered under one condition."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from harness.condition import Condition, Timing

STATUSES = ("ok", "skipped", "failed", "timeout")
COLD_AT_MOST = 0.01
"""The largest share of a store that may be in the page cache when a cold condition begins."""


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """The window that was measured under one condition, or the reason why there is none; None is "not measured".

    repeat: the number of the measurement under this condition, from 0.
    status: one of STATUSES; only "ok" has a window. reason: why the status is not "ok".
    marks: the contract's claims that the loader does not keep, each with the reason.
    rows: the number of cells delivered in the window of `seconds`.
    windows: the number of rows in each whole second.
    waiting_s: the seconds of the window that were spent waiting for the next minibatch.
    epochs: the number of epochs that began within the window.
    open_s: the seconds that opening the loader took. first_batch_s: those from requesting the first epoch to its first
    minibatch.
    fetches: rows divided by the loader's fetch_rows.
    cpu_s, disk_read_bytes: CPU time used and bytes read from the disk within the window.
    resident_before, resident_after: the share of the store in the page cache before and after the measurement.

    Raises ValueError for an unknown status, or for "ok" without rows, seconds or fetches.
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
