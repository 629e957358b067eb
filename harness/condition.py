"""The settings of a measurement (Condition) and its durations (Timing)."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal

Scalar = bool | int | float | str

ORDERS = ("stream", "random")
OUTPUTS = ("csr", "dense")
CACHES = ("cold", "warm", "bounded")
MEMORY_FRACTION = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """All settings of a measurement that can change its result. Raises ValueError for an invalid value.

    batch_size: the number of cells in a minibatch.
    workers: the number of worker processes of the loader (0: the measuring process loads).
    processes: the number of processes that measure at the same time, each with its own loader and order; their rows are
    added up.
    cores: the number of cores to which CPU affinity and every thread pool are limited (None: all cores).
    cache: "cold" begins with none of the store in the page cache, "warm" with all of it. "bounded" begins with none,
    and limits the page cache to the share `memory_fraction` of the store (default: a quarter); the memory of the
    process itself comes on top.
    consumer_ms: milliseconds for which an emulated consumer holds each minibatch.
    knobs: (name, value) of the loader's own parameters that are set, sorted by name; the others keep their defaults.
    """

    dataset: str
    loader: str
    order: Literal["stream", "random"] = "random"
    batch_size: int = 64
    workers: int = 0
    processes: int = 1
    cores: int | None = None
    output: Literal["csr", "dense"] = "csr"
    cache: Literal["cold", "warm", "bounded"] = "cold"
    memory_fraction: float | None = None
    consumer_ms: float = 0.0
    seed: int = 0
    knobs: tuple[tuple[str, Scalar], ...] = ()

    def __post_init__(self) -> None:
        for name, allowed in (("order", ORDERS), ("output", OUTPUTS), ("cache", CACHES)):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} is {getattr(self, name)!r}, not one of {', '.join(allowed)}")
        if self.cache == "bounded" and self.memory_fraction is None:
            object.__setattr__(self, "memory_fraction", MEMORY_FRACTION)
        if (self.memory_fraction is not None) != (self.cache == "bounded"):
            raise ValueError("memory_fraction belongs to a bounded cache only")
        if self.memory_fraction is not None and not 0 < self.memory_fraction <= 1:
            raise ValueError(f"memory_fraction is {self.memory_fraction!r}, not a share above 0 and at most 1")
        if not 0 <= self.consumer_ms < float("inf"):
            raise ValueError(f"consumer_ms is {self.consumer_ms!r}, not a number of milliseconds of at least 0")
        for name, least in (("batch_size", 1), ("workers", 0), ("processes", 1), ("seed", 0), ("cores", 1)):
            value = getattr(self, name)
            if value is None and name == "cores":
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise ValueError(f"{name} is {value!r}, not a whole number of at least {least}")
        object.__setattr__(self, "knobs", tuple(sorted((str(k), v) for k, v in self.knobs)))

    @property
    def key(self) -> str:
        """12 hex digits that identify this condition: a hash of the fields that differ from their defaults."""
        values = {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != f.default}
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:12]

    @property
    def twin(self) -> "Condition":
        """This condition with CSR output, a cold cache, one process and no consumer. Its order of cells is the same."""
        return replace(self, output="csr", cache="cold", memory_fraction=None, consumer_ms=0.0, processes=1)

    def to_dict(self) -> dict[str, Any]:
        """All fields and `key`, in values that JSON can hold."""
        return asdict(self) | {"knobs": dict(self.knobs), "key": self.key}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Condition":
        """The inverse of `to_dict`. Raises ValueError for an invalid value, or a `key` that does not fit the fields."""
        values = dict(values)
        key = values.pop("key")
        condition = cls(**{**values, "knobs": tuple(values.get("knobs", {}).items())})
        if condition.key != key:
            raise ValueError(f"its key is {key}, its condition's {condition.key}")
        return condition

    def __str__(self) -> str:
        parts = [self.loader, self.order, self.output]
        parts += [f"{k}={v}" for k, v in self.knobs]
        parts += [
            f"{f.name}={getattr(self, f.name)}"
            for f in fields(self)
            if f.name not in ("dataset", "loader", "order", "output", "knobs") and getattr(self, f.name) != f.default
        ]
        return " ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """The durations of a measurement, in seconds.

    warmup_s: the minimum of the warm-up. measure_s: the minimum of the window. timeout_s: the time after which a worker
    is killed. order_s: the time after the window for which the order of the cells is recorded (0: not recorded).

    Raises ValueError for a negative duration; only warmup_s and order_s may be 0.
    """

    warmup_s: float = 30.0
    measure_s: float = 120.0
    timeout_s: float = 900.0
    order_s: float = 10.0

    def __post_init__(self) -> None:
        for f in fields(self):
            seconds = getattr(self, f.name)
            if not (seconds > 0 or (seconds == 0 and f.name in ("warmup_s", "order_s"))):
                raise ValueError(f"{f.name} is {seconds!r}, not a positive number of seconds")
