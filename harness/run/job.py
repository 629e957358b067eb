"""The messages between parent and worker: the task (Job) and its result (Outcome)."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from harness.condition import Condition, Timing
from harness.data.dataset import Dataset


@dataclass(frozen=True, kw_only=True)
class Job:
    """One task of a worker, with all its inputs.

    task: "convert" writes the loader's store; "ceiling" decodes and copies the store without a loader; "measure" opens
    the loader and measures a window.
    adapter: "module:Class", so that the worker can use an adapter that only the parent process has registered.
    store: the folder of the loader's store.
    condition, timing: only for "measure".
    waits: the points at which the worker waits for the parent, in this order: "imported", after its imports, and
    "opened", after it has opened the loader.
    order_path: only for "measure"; the file in which to record the order (None: it is not recorded).
    environment: variables that the worker sets before its imports, by which clients find a bucket.
    counters_url: where a bucket tells what it has served (None: there is no bucket).
    cores, seconds: only for "ceiling"; the number of cores to use, and the duration of each of its measurements.
    """

    task: Literal["convert", "ceiling", "measure"]
    loader: str
    adapter: str
    dataset: Dataset
    store: Path
    condition: Condition | None = None
    timing: Timing | None = None
    waits: tuple[Literal["imported", "opened"], ...] = ()
    order_path: Path | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    counters_url: str | None = None
    cores: int | None = None
    seconds: float | None = None

    def to_json(self) -> str:
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        values |= {"dataset": self.dataset.to_dict(), "timing": asdict(self.timing) if self.timing else None}
        values |= {"condition": self.condition.to_dict() if self.condition else None, "store": str(self.store)}
        return json.dumps(values | {"order_path": str(self.order_path) if self.order_path else None})

    @classmethod
    def from_json(cls, line: str) -> "Job":
        values = json.loads(line)
        parsers = {
            "dataset": Dataset.from_dict,
            "condition": Condition.from_dict,
            "timing": lambda fields: Timing(**fields),
            "store": Path,
            "waits": tuple,
            "order_path": Path,
        }
        parsed = {name: parse(values[name]) for name, parse in parsers.items() if values[name] is not None}
        return cls(**values | parsed)


@dataclass(frozen=True, kw_only=True)
class Window:
    """The answer to "measure": the fields of a Measurement that the worker fills in, and edges_s.

    edges_s: time.perf_counter() at the beginning and at the end of the window; all processes of a machine share this
    clock.
    """

    rows: int
    seconds: float
    edges: list[list[float]] | None
    waiting_s: float | None
    epochs: int
    warmed_epochs: float
    import_s: float
    open_s: float
    first_batch_s: float
    second_batch_s: float | None
    fetches: float
    cpu_s: float
    peak_rss_bytes: int | None
    held_bytes: int | None
    imported_bytes: int | None
    disk_read_bytes: int | None
    disk_reads: int | None
    requests: int | None
    received_bytes: int | None
    marks: dict[str, str]
    edges_s: tuple[float, float]
    tokens: int | None = None
    accelerators: int | None = None
    probes: list[list[float]] | None = None


@dataclass(frozen=True, kw_only=True)
class Converted:
    """The answer to "convert": how long the conversion took, and the peak memory of the worker."""

    seconds: float
    peak_rss_bytes: int | None


@dataclass(frozen=True, kw_only=True)
class Rates:
    """The answer to "ceiling", described at `loaders.protocol.Loader.ceiling`."""

    decode_cells_per_s: float | None
    copy_cells_per_s: dict[str, float]
    piece_bytes: int


ANSWERS = {"measure": Window, "convert": Converted, "ceiling": Rates}
Answer = Window | Converted | Rates


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a worker ended.

    reason: why the status is not "ok"; with "ok", what went wrong after the answer was sent (None: nothing).
    answer: None unless the status is "ok".
    errno: the error number of the OSError that ended the task (0 if that error has no number; None: no OSError).
    out_of_memory: whether the memory limit killed the worker or a process that it started.
    log: what the worker wrote to standard error.
    """

    status: Literal["ok", "skipped", "failed", "timeout"]
    reason: str | None = None
    answer: Answer | None = None
    errno: int | None = None
    out_of_memory: bool = False
    log: str = ""

    @classmethod
    def of_message(cls, task: str, message: Mapping[str, Any]) -> "Outcome":
        """The outcome in a worker's message, as `message` writes it. The task determines the type of `answer`."""
        answer = message["answer"]
        return cls(**message | {"answer": ANSWERS[task](**answer) if answer is not None else None})


def message(outcome: Outcome) -> dict[str, Any]:
    """The outcome without `out_of_memory` and `log`, in values that JSON can hold; `Outcome.of_message` reads it."""
    return {
        "status": outcome.status,
        "reason": outcome.reason,
        "errno": outcome.errno,
        "answer": asdict(outcome.answer) if outcome.answer else None,
    }
