"""The messages between parent and worker: the task (Job) and its result (Outcome)."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from harness.condition import Condition, Timing
from harness.data.dataset import Dataset


@dataclass(frozen=True, kw_only=True)
class Job:
    """One task of a worker, with all its inputs.

    task: "convert" writes a loader's store; "ceiling" decodes and copies it without a loader; "measure" opens the
    loader and measures a window; "weigh" measures how much memory the loader holds.
    adapter: "module:Class" of the loader, so that the worker can use one that only this process has registered.
    store: the folder of the loader's store. condition, timing, files (of the store, absolute): for measure and weigh.
    order_path: the file in which to record the order; None: not recorded. cores, seconds: for ceiling.
    """

    task: Literal["convert", "ceiling", "measure", "weigh"]
    loader: str
    adapter: str
    dataset: Dataset
    store: Path
    condition: Condition | None = None
    timing: Timing | None = None
    files: tuple[str, ...] = ()
    order_path: Path | None = None
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
            "order_path": Path,
            "files": tuple,
        }
        parsed = {name: parse(values[name]) for name, parse in parsers.items() if values[name] is not None}
        return cls(**values | parsed)


@dataclass(frozen=True, kw_only=True)
class Window:
    """The answer to "measure": the fields of a Measurement that the worker fills.

    edges_s: the clock at the window's first and last edge; all processes of a machine share the clock.
    """

    rows: int
    seconds: float
    windows: list[int] | None
    waiting_s: float | None
    epochs: int
    open_s: float
    first_batch_s: float
    fetches: float
    cpu_s: float
    peak_rss_bytes: int | None
    disk_read_bytes: int | None
    marks: dict[str, str]
    edges_s: tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Converted:
    """The answer to "convert"."""

    seconds: float
    peak_rss_bytes: int | None


@dataclass(frozen=True, kw_only=True)
class Rates:
    """The answer to "ceiling": see `loaders.protocol.Loader.ceiling`."""

    decode_cells_per_s: float | None
    copy_cells_per_s: dict[str, float]
    piece_bytes: int


@dataclass(frozen=True, kw_only=True)
class Held:
    """The answer to "weigh": the most bytes that the worker held."""

    held_bytes: int


ANSWERS = {"measure": Window, "convert": Converted, "ceiling": Rates, "weigh": Held}
Answer = Window | Converted | Rates | Held


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a worker ended.

    reason: why it is not ok; if it is ok, what went wrong after its answer. answer: only if it is ok. errno: the
    system's error number if an OSError ended the task (0 if it had none). out_of_memory: whether the memory limit
    killed the worker. log: its standard error.
    """

    status: Literal["ok", "skipped", "failed", "timeout"]
    reason: str | None = None
    answer: Answer | None = None
    errno: int | None = None
    out_of_memory: bool = False
    log: str = ""

    @classmethod
    def of_message(cls, task: str, message: Mapping[str, Any]) -> "Outcome":
        """The outcome that a worker sent. The task determines the type of `answer`."""
        answer = message["answer"]
        return cls(**message | {"answer": ANSWERS[task](**answer) if answer is not None else None})


def message(outcome: Outcome) -> dict[str, Any]:
    """The message that `Outcome.of_message` reads, in values that JSON can hold."""
    return {
        "status": outcome.status,
        "reason": outcome.reason,
        "errno": outcome.errno,
        "answer": asdict(outcome.answer) if outcome.answer else None,
    }
