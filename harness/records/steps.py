"""Training steps fed by a loader: a line of steps.jsonl for each run."""

from dataclasses import dataclass, field
from typing import Any

MFU_AT_MOST = 1.5  # above 1, since the peak was not measured at the same time
FILE = "steps.jsonl"
STATUSES = ("ok", "skipped", "failed", "timeout")


@dataclass(frozen=True, kw_only=True)
class Steps:
    """A model that was trained for some time on the minibatches of a loader; None is "not measured".

    loader: None for the run without a loader, in which every step takes the same minibatch. workers, knobs: its worker
    processes, and those of its own parameters that were set. size: a name in `harness.model.sizes`. device: "cpu" or
    the name of the GPU. dtype: of matrix products. parameters: of the model, embeddings included. batch_size, length:
    the cells of a minibatch, and the tokens of a row with padding.

    status: one of STATUSES; only "ok" has numbers. reason: why the status is not "ok".
    peak_flops_per_s: the measured peak of the device. seconds: the window, from minibatch to minibatch, after a few
    steps that are not counted. steps, cells, tokens: in the window; tokens without padding. fetches: cells divided by
    the loader's fetch_rows. waiting_s: the time in `next()`, tokenising included.
    wait_, copy_, step_median_s, _p90_s: the median and the 90th percentile of the time in `next()`, of that to bring
    the minibatch to the device, and of that to train on it.
    flops: that the model needed for all steps, with padding. token_flops: the same without.
    """

    dataset: str
    loader: str | None
    workers: int
    knobs: dict[str, Any]
    size: str
    device: str
    dtype: str
    parameters: int
    batch_size: int
    length: int
    status: str
    reason: str | None = None
    peak_flops_per_s: float | None = None
    seconds: float | None = None
    steps: int | None = None
    cells: int | None = None
    tokens: int | None = None
    fetches: float | None = None
    waiting_s: float | None = None
    wait_median_s: float | None = None
    wait_p90_s: float | None = None
    copy_median_s: float | None = None
    copy_p90_s: float | None = None
    step_median_s: float | None = None
    step_p90_s: float | None = None
    flops: int | None = None
    token_flops: int | None = None
    provenance: dict[str, Any] = field(default_factory=dict)
    schema: int = 1

    def __post_init__(self) -> None:
        """Raises ValueError for an unknown status, or for "ok" without steps, seconds, FLOPs or peak."""
        if self.status not in STATUSES:
            raise ValueError(f"its status is {self.status!r}")
        if self.status == "ok" and not (self.steps and self.seconds and self.flops and self.peak_flops_per_s):
            raise ValueError("it is ok, yet without steps, seconds, FLOPs or peak")

    @property
    def setting(self) -> tuple[Any, ...]:
        """What is the same in two runs of which the later one replaces the earlier one in a table."""
        knobs = tuple(sorted(self.knobs.items()))
        shape = (self.size, self.batch_size, self.length, self.device, self.dtype)
        return self.dataset, *shape, self.loader, self.workers, knobs

    @property
    def cells_per_s(self) -> float | None:
        return self.cells / self.seconds if self.cells and self.seconds else None

    @property
    def tokens_per_s(self) -> float | None:
        """Without padding."""
        return self.tokens / self.seconds if self.tokens and self.seconds else None

    @property
    def wait_share(self) -> float | None:
        """The share of the window that was spent in `next()`."""
        return None if self.waiting_s is None else self.waiting_s / self.seconds

    @property
    def mfu(self) -> float | None:
        """Model FLOPs utilisation, as `harness.model.peak` defines it, padding included."""
        return self._utilisation(self.flops)

    @property
    def token_mfu(self) -> float | None:
        """The same without padding."""
        return self._utilisation(self.token_flops)

    def _utilisation(self, flops: int | None) -> float | None:
        return None if flops is None else flops / (self.seconds * self.peak_flops_per_s)


def impossible(run: Steps) -> list[str]:
    """The reasons why one run cannot be true."""
    if run.status != "ok":
        return [] if run.reason else [f"it is {run.status}, and gives no reason"]
    reasons = []
    if run.tokens > run.cells * run.length or run.token_flops > run.flops:
        reasons.append("it has more tokens than its rows have room for")
    if run.mfu > MFU_AT_MOST:
        reasons.append(f"it computed at {run.mfu:.0%} of the peak of its device")
    if (run.waiting_s or 0) + run.steps * run.step_median_s / 2 > run.seconds:
        reasons.append("its steps and its waiting take longer than its window")
    return reasons
