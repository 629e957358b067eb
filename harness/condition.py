"""What is measured (Condition), for how long (Timing), and the grids that name many at once."""

import hashlib
import itertools
import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

from harness.errors import UserError, unknown

GRIDS = Path(__file__).with_name("grids.toml")

Scalar = bool | int | float | str

ORDERS = ("stream", "random")
OUTPUTS = ("csr", "dense")
CACHES = ("cold", "warm", "bounded")
MEMORY_FRACTION = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """Everything that may change a number, and nothing else.

    Units: `batch_size` in cells; `workers` in processes (0: the measuring process itself loads);
    `processes`: measured at the same time, each with a loader of its own and an order of its own, added up;
    `cores` limits CPU affinity and every thread pool (None: all there are). `cache`: "cold" begins with none of the
    store in the page cache, "warm" with all of it; "bounded" begins with none and never has more than the share
    `memory_fraction` (a quarter, if nothing is said) of it there, beside what the process itself needs.
    `consumer_ms`: for so long an emulated consumer holds each batch. `knobs` are the loader's own parameters where
    they differ from its defaults, sorted by name.
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
            raise ValueError("memory_fraction is said of a bounded cache only")
        if self.memory_fraction is not None and not 0 < self.memory_fraction <= 1:
            raise ValueError(f"memory_fraction is {self.memory_fraction!r}, not a share above 0 and up to 1")
        if not 0 <= self.consumer_ms < float("inf"):
            raise ValueError(f"consumer_ms is {self.consumer_ms!r}, not milliseconds from 0 up")
        for name, least in (("batch_size", 1), ("workers", 0), ("processes", 1), ("seed", 0), ("cores", 1)):
            value = getattr(self, name)
            if value is None and name == "cores":
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise ValueError(f"{name} is {value!r}, not a whole number of at least {least}")
        object.__setattr__(self, "knobs", tuple(sorted((str(k), v) for k, v in self.knobs)))

    @property
    def key(self) -> str:
        """12 hex digits naming this condition; a field left at its default does not enter it."""
        said = {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != f.default}
        return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:12]

    @property
    def twin(self) -> "Condition":
        """The same with CSR output, a cold cache, alone and without a consumer: its cells come in the same order."""
        return replace(self, output="csr", cache="cold", memory_fraction=None, consumer_ms=0.0, processes=1)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"knobs": dict(self.knobs)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Condition":
        return cls(**{**values, "knobs": tuple(values.get("knobs", {}).items())})

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
    """Seconds: warm-up, window, longest life of a worker, and time for recording the order after the window (0: it is
    not recorded)."""

    warmup_s: float = 30.0
    measure_s: float = 120.0
    timeout_s: float = 900.0
    order_s: float = 10.0

    def __post_init__(self) -> None:
        for f in fields(self):
            seconds = getattr(self, f.name)
            if not (seconds > 0 or (seconds == 0 and f.name in ("warmup_s", "order_s"))):
                raise ValueError(f"{f.name} is {seconds!r}, not a positive number of seconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """The conditions of one figure or table.

    axis: the column of the table over which its lines are drawn, where it is a grid of scaling.
    """

    name: str
    title: str
    timing: Timing
    conditions: tuple[Condition, ...]
    axis: str | None = None


@cache
def _grids() -> dict[str, Any]:
    return tomllib.loads(GRIDS.read_text())


def expand(name: str, dataset: str) -> Grid:
    """The grid `name` of grids.toml over `dataset`: every arm's lists multiplied out, without duplicates.

    An arm may say `loader = "all"`, and `without = [...]` of which there is then no condition.
    """
    tables = _grids()
    if name not in tables:
        raise unknown("grid", name, tables)
    table = tables[name]
    conditions: dict[Condition, None] = {}
    try:
        for arm in table["arm"]:
            knobs = arm.get("knobs", {})
            axes = {key: value for key, value in arm.items() if key not in ("knobs", "without")}
            if axes.get("loader") == "all":
                axes["loader"] = _all_but(arm.get("without", []))
            for values in _product(axes):
                for own in _product(knobs):
                    conditions[Condition(dataset=dataset, **values, knobs=tuple(own.items()))] = None
        timing = Timing(**table.get("timing", {}))
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{GRIDS.name}, table [{name}]: {error}.") from error
    return Grid(name=name, title=table["title"], timing=timing, conditions=tuple(conditions), axis=table.get("axis"))


def _all_but(without: Sequence[str]) -> list[str]:
    """Every loader there is, but for these. ValueError for one that there is not."""
    from loaders import NAMES  # the adapters know of conditions

    unknown_names = [name for name in without if name not in NAMES]
    if unknown_names:
        raise ValueError(f"there is no loader {', '.join(unknown_names)} to leave out")
    return [name for name in NAMES if name not in without]


def grid_names() -> tuple[str, ...]:
    """Of grids.toml."""
    return tuple(_grids())


def datasets(name: str) -> tuple[str, ...]:
    """The data sets that a grid compares; () for one that takes any."""
    return tuple(_grids().get(name, {}).get("datasets", ()))


def _product(axes: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every combination of the axes; a value that is not a list is an axis of one."""
    lists = [value if isinstance(value, list) else [value] for value in axes.values()]
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*lists)]
