"""One measurement: what a worker delivered under one condition."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from harness.condition import Condition, Timing

STATUSES = ("ok", "skipped", "failed", "timeout")
RULES_EDITION = 2
COLD_AT_MOST = 0.01
"""The largest share of a store that may be in the page cache when a condition begins that is not "warm"."""
WARM_AT_LEAST = 0.99
"""The smallest share of a store that must be in the page cache when a condition "warm" begins."""


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """The window that was measured under one condition, or the reason why there is none; None is "not measured".

    repeat: the number of the measurement under this condition, from 0. again: whether it is the second of an A/A pair.
    status: one of STATUSES; only "ok" has a window. reason: why the status is not "ok".
    marks: the contract's claims that the loader does not keep, each with the reason.
    rows: the number of cells delivered in the window of `seconds`. tokens: the number of tokens of these cells, without
    padding; None for other outputs, and with accelerators.
    edges: [seconds, rows] since the start of the window, at no more than 64 of the moments when a fetch arrived.
    windows: the number of rows in each whole second.
    waiting_s: the seconds of the window that were spent waiting for the next minibatch.
    epochs: the number of epochs that began within the window. warmed_epochs: the epochs delivered before the window.
    import_s, open_s: the seconds that importing the library and opening the loader took. first_batch_s, second_batch_s:
    those from requesting the first epoch to its first and second minibatch.
    fetches: rows divided by the loader's fetch_rows.
    cpu_s, disk_read_bytes: CPU time used and bytes read from the disk within the window. disk_reads: the number of
    reads from the disk; None where the disk is not limited. requests, received_bytes: what a bucket served within the
    window; None without one.
    peak_rss_bytes: the largest resident memory, with libraries and mapped files. held_bytes: the most memory that was
    not mapped from files, in samples. imported_bytes: the same after the imports, before the loader was opened.
    accelerators: the most emulated accelerators that were fed, 0 if not even one; None without `accelerator_ms`.
    probes: [accelerators, utilisation, seconds] of each probe, in order. The window is then the probe with that many,
    or with one if none was fed, and waiting_s all time of it in which nothing was computed.
    resident_before, resident_after: the share of the store in the page cache before and after the measurement.

    Raises ValueError for an unknown status, or for "ok" without rows, seconds or fetches.
    """

    LATER: ClassVar = (
        "waiting_s", "again", "edges", "warmed_epochs", "import_s", "second_batch_s", "held_bytes", "imported_bytes",
        "disk_reads", "requests", "received_bytes", "tokens", "accelerators", "probes",
    )  # fmt: skip

    condition: Condition
    timing: Timing
    repeat: int
    again: bool | None = None
    status: str
    reason: str | None = None
    marks: dict[str, str] = field(default_factory=dict)
    rows: int | None = None
    tokens: int | None = None
    seconds: float | None = None
    windows: list[int] | None = None
    edges: list[list[float]] | None = None
    waiting_s: float | None = None
    epochs: int | None = None
    warmed_epochs: float | None = None
    import_s: float | None = None
    open_s: float | None = None
    first_batch_s: float | None = None
    second_batch_s: float | None = None
    fetches: float | None = None
    cpu_s: float | None = None
    peak_rss_bytes: int | None = None
    held_bytes: int | None = None
    imported_bytes: int | None = None
    disk_read_bytes: int | None = None
    disk_reads: int | None = None
    requests: int | None = None
    received_bytes: int | None = None
    accelerators: int | None = None
    probes: list[list[float]] | None = None
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

    @property
    def tokens_per_s(self) -> float | None:
        """Without padding; None for other outputs."""
        return self.tokens / self.seconds if self.tokens and self.seconds else None
