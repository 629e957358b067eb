"""What a worker is asked to do (Job), and what it answers (Outcome)."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from harness.condition import Condition, Timing
from harness.data.dataset import Dataset


@dataclass(frozen=True, kw_only=True)
class Job:
    """One task of a worker, with all that it needs to know.

    task: "convert" writes a loader's store; "ceiling" decodes and copies it without a loader; "measure" opens the
    loader and times it; "weigh" finds out how much memory the loader holds.
    adapter: "module:Class" of the loader, so that the worker can use one that only this process has registered.
    store: the folder of the loader's store. condition, timing, files (of the store, absolute): for measure and weigh.
    order_path: where to record the order, if it is to be recorded. cores, seconds: for ceiling.
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
        build = {
            "dataset": Dataset.from_dict,
            "condition": Condition.from_dict,
            "timing": lambda fields: Timing(**fields),
            "store": Path,
            "order_path": Path,
            "files": tuple,
        }
        made = {name: function(values[name]) for name, function in build.items() if values[name] is not None}
        return cls(**values | made)


@dataclass(frozen=True, kw_only=True)
class Window:
    """The answer to "measure": the fields of a Measurement that the worker fills.

    edges_s: the clock at the window's first and last edge; processes of one machine share the clock.
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
    """The answer to "weigh": bytes that the worker held at most."""

    held_bytes: int


ANSWERS = {"measure": Window, "convert": Converted, "ceiling": Rates, "weigh": Held}
Answer = Window | Converted | Rates | Held


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a worker ended.

    reason: why it is not ok; of one that is ok, what went wrong after its answer. answer: if it is ok. errno: the
    system's error number, if an OSError ended the task (0 where it had none). out_of_memory: whether the worker was
    killed by its memory limit. log: what it wrote to standard error.
    """

    status: Literal["ok", "skipped", "failed", "timeout"]
    reason: str | None = None
    answer: Answer | None = None
    errno: int | None = None
    out_of_memory: bool = False
    log: str = ""

    @classmethod
    def of_message(cls, task: str, message: Mapping[str, Any]) -> "Outcome":
        """From what the worker sent; its answer is of the task's kind."""
        answer = message["answer"]
        return cls(**message | {"answer": ANSWERS[task](**answer) if answer is not None else None})


def message(outcome: Outcome) -> dict[str, Any]:
    """What `Outcome.of_message` reads, as JSON holds it."""
    return {
        "status": outcome.status,
        "reason": outcome.reason,
        "errno": outcome.errno,
        "answer": asdict(outcome.answer) if outcome.answer else None,
    }
