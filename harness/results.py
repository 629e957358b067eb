"""Measurements and other records on disk: one JSON line each, appended and never rewritten."""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Protocol, Self

from harness.condition import Condition, Timing
from harness.errors import UserError

SCHEMA = 1
CONVERSIONS = "conversions.jsonl"  # in a machine's folder, beside its grids
LATER = ("waiting_s",)  # fields that the schema's first lines lack: not measured
STATUSES = ("ok", "skipped", "failed", "timeout")


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """What one worker found under one condition; null is "not measured", never 0.

    rows in cells, over `seconds`; windows: rows in each whole second of them; waiting_s: of them, what was spent in
    waiting for the next batch; fetches: rows / the loader's
    fetch_rows; epochs: times the window began the data anew; resident_*: share of the store in the page cache.
    """

    condition: Condition
    timing: Timing
    repeat: int
    status: str
    reason: str | None = None
    marks: dict[str, str] = field(default_factory=dict)  # claims the loader does not make, with why
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
    schema: int = SCHEMA

    @property
    def cells_per_s(self) -> float | None:
        return self.rows / self.seconds if self.rows and self.seconds else None

    def to_json(self) -> str:
        values = asdict(self) | {"condition": self.condition.to_dict() | {"key": self.condition.key}}
        return json.dumps(values, allow_nan=False)

    @classmethod
    def from_json(cls, line: str) -> "Measurement":
        """Raises ValueError saying what is wrong with the line."""
        values = json.loads(line)
        if not isinstance(values, dict) or values.get("schema") != SCHEMA:
            raise ValueError(f"it is not of schema {SCHEMA}")
        known = {f.name for f in fields(cls)}
        if odd := sorted(set(values | dict.fromkeys(LATER)) ^ known):
            raise ValueError(f"it has other fields than a measurement: {', '.join(odd)}")
        if values["status"] not in STATUSES:
            raise ValueError(f"its status is {values['status']!r}")
        if values["status"] == "ok" and not all(values[name] for name in ("rows", "seconds", "fetches")):
            raise ValueError("it is ok, yet without rows, seconds or fetches")
        for name, kind in (("condition", dict), ("timing", dict), ("provenance", dict), ("marks", dict)):
            if not isinstance(values[name], kind):
                raise ValueError(f"its {name} is no object")
        condition = dict(values["condition"])
        key = condition.pop("key")
        try:
            values |= {"condition": Condition.from_dict(condition), "timing": Timing(**values["timing"])}
        except (TypeError, AttributeError) as error:
            raise ValueError(str(error)) from error
        if values["condition"].key != key:
            raise ValueError(f"its key is {key}, its condition's {values['condition'].key}")
        return cls(**values)


@dataclass(frozen=True, kw_only=True)
class Conversion:
    """What making a loader's store cost; null is "not measured". The fingerprint is in the provenance."""

    dataset: str
    loader: str
    store: str
    status: str
    reason: str | None = None
    seconds: float | None = None
    peak_rss_bytes: int | None = None
    provenance: dict[str, Any] = field(default_factory=dict)
    schema: int = SCHEMA

    def to_json(self) -> str:
        return json.dumps(asdict(self), allow_nan=False)

    @classmethod
    def from_json(cls, line: str) -> "Conversion":
        """Raises ValueError saying what is wrong with the line."""
        return of_fields(cls, line)


def of_fields[T](kind: type[T], line: str) -> T:
    """A record all of whose fields are JSON's own; ValueError where the line has others."""
    values = json.loads(line)
    if not isinstance(values, dict) or set(values) != {f.name for f in fields(kind)}:
        raise ValueError(f"it has other fields than a {kind.__name__.lower()}")
    return kind(**values)


class Record(Protocol):
    """One line of a file."""

    def to_json(self) -> str: ...

    @classmethod
    def from_json(cls, line: str) -> Self: ...


def existing(folder: Path) -> Path:
    """The folder; UserError where there is none."""
    if not folder.is_dir():
        raise UserError(f"There is no results folder {folder}.")
    return folder


def order_path(folder: Path, condition: Condition, fingerprint: str) -> Path:
    """Where a machine's folder keeps the row ids of the condition's first batches."""
    return folder / "orders" / f"{condition.twin.key}-{fingerprint}.npz"


def read[T: Record](path: Path, kind: type[T] = Measurement) -> list[T]:
    """All records of a file, in the order they were made; [] for a file that is not there."""
    if not path.exists():
        return []
    found = []
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            found.append(kind.from_json(line.decode()))
        except (ValueError, KeyError) as error:
            raise UserError(
                f"{path}, line {number} is not a {kind.__name__.lower()} ({error}). Nothing was changed; "
                "mend the line or move the file away."
            ) from error
    return found


def append(path: Path, record: Record) -> None:
    """Adds one line that survives a power cut once this returns; on a full disk the file stays as it was."""
    line = (record.to_json() + "\n").encode()
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        size = os.fstat(file).st_size
        try:
            written = os.write(file, line)
            if written != len(line):
                raise OSError(f"only {written} of {len(line)} bytes fitted")
            os.fsync(file)
        except OSError as error:
            os.ftruncate(file, size)
            raise UserError(f"{path} could not be written: {error}. Every earlier line of it is whole.") from error
    finally:
        os.close(file)


@contextmanager
def lock(folder: Path) -> Iterator[None]:
    """Makes the folder and holds it for this process: two runs at once would spoil each other's work."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / ".lock").open("w")
    except OSError as error:
        raise UserError(f"The folder {folder} cannot be written: {error.strerror}.") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                f"Another run is writing to {folder}; two at once would spoil each other. Wait for it, or stop it."
            ) from None
        yield
