"""The settings of a measurement (Condition) and its durations (Timing)."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal

Scalar = bool | int | float | str

ORDERS = ("stream", "random")
OUTPUTS = ("csr", "dense")
"""Of the cells themselves; "tokens" is an output too."""
TOKENS = ("geneformer", "scgpt")
CONSUMERS = ("idle", "busy")
CACHES = ("first", "warm", "bounded", "cold")
DISKS = ("nvme", "gp3", "hdd")
FEWEST_FETCHES = 5
"""In a window. A row with fewer enters no ratio and no claim."""
LEAST_UTILISATION = 0.9
"""Of accelerators that count as fed."""
EDITION_1 = {"cache": "cold"}
"""Defaults of the first edition of the rules. The keys of all conditions are computed with them, so that those of old
records stay valid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """All settings of a measurement that can change its result. Raises ValueError for an invalid value.

    batch_size: the number of cells in a minibatch.
    workers: the number of worker processes of the loader (0: the measuring process loads).
    processes: the number of processes that measure at the same time, each with its own loader and order; their rows are
    added up.
    cores: the number of cores to which CPU affinity and every thread pool are limited (None: all cores).
    output: what minibatches hold: "csr", "dense", or "tokens" for transformers. tokens: only for "tokens"; their
    encoding, see `loaders.tokens`.
    cache: the regime. "first": the page cache is empty at the start, and the window lies within the first epoch.
    "warm": the store is in memory, and the warm-up lasts a whole epoch. "bounded": the page cache is empty at the
    start, and all memory of the worker, page cache included, is limited to `memory_limit_bytes`; the store is at least
    four times as large. "cold", only in records of the first edition of the rules: the page cache is empty at the
    start; later epochs may be read from memory.
    memory_limit_bytes: only for "bounded". memory_fraction: only in records of the first edition.
    disk: "hdd", "gp3" and "nvme" limit the disk, see `harness.run.limits`; None leaves it unchanged.
    ttfb_ms: the loader reads the store from a bucket on this machine, whose answers begin after this many milliseconds;
    None: from the disk. link_mbps, connection_mbps: only with `ttfb_ms`; the rate of all connections together, and of
    each, in megabits a second (None: not limited).
    consumer_ms: milliseconds for which an emulated consumer holds each minibatch.
    accelerator_ms: the milliseconds of a step of emulated accelerators, in which each takes `batch_size` cells. What is
    measured is then how many of them the loader feeds, see `harness.run.utilisation`; None: the throughput. consumer:
    only with `accelerator_ms`; "idle" leaves the processor alone during a step, "busy" keeps one core busy.
    knobs: (name, value) of the loader's own parameters that are set, sorted by name; the others keep their defaults.
    """

    dataset: str
    loader: str
    order: Literal["stream", "random"] = "random"
    batch_size: int = 64
    workers: int = 0
    processes: int = 1
    cores: int | None = None
    output: Literal["csr", "dense", "tokens"] = "csr"
    tokens: Literal["geneformer", "scgpt"] | None = None
    cache: Literal["first", "warm", "bounded", "cold"] = "warm"
    memory_fraction: float | None = None
    memory_limit_bytes: int | None = None
    disk: Literal["nvme", "gp3", "hdd"] | None = None
    ttfb_ms: float | None = None
    link_mbps: float | None = None
    connection_mbps: float | None = None
    consumer_ms: float = 0.0
    accelerator_ms: float | None = None
    consumer: Literal["idle", "busy"] = "idle"
    seed: int = 0
    knobs: tuple[tuple[str, Scalar], ...] = ()

    def __post_init__(self) -> None:
        choices = {"order": ORDERS, "output": (*OUTPUTS, "tokens"), "cache": CACHES, "consumer": CONSUMERS}
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} is {getattr(self, name)!r}, not one of {', '.join(allowed)}")
        if self.tokens not in (None, *TOKENS):
            raise ValueError(f"tokens is {self.tokens!r}, not one of {', '.join(TOKENS)}")
        if (self.output == "tokens") != (self.tokens is not None):
            raise ValueError('a condition with the output "tokens", and no other, has tokens')
        if self.disk not in (None, *DISKS):
            raise ValueError(f"disk is {self.disk!r}, not one of {', '.join(DISKS)}")
        self._check_link()
        self._check_accelerators()
        limits = [self.memory_limit_bytes, self.memory_fraction]
        if sum(limit is not None for limit in limits) != (self.cache == "bounded"):
            raise ValueError("a bounded condition, and no other, has memory_limit_bytes")
        if not all(limit is None or limit > 0 for limit in limits):
            raise ValueError("the memory limit is not above 0")
        if not 0 <= self.consumer_ms < float("inf"):
            raise ValueError(f"consumer_ms is {self.consumer_ms!r}, not a number of milliseconds of at least 0")
        for name, least in (("batch_size", 1), ("workers", 0), ("processes", 1), ("seed", 0), ("cores", 1)):
            value = getattr(self, name)
            if value is None and name == "cores":
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise ValueError(f"{name} is {value!r}, not a whole number of at least {least}")
        object.__setattr__(self, "knobs", tuple(sorted((str(k), v) for k, v in self.knobs)))

    def _check_link(self) -> None:
        if self.ttfb_ms is None:
            if self.link_mbps is not None or self.connection_mbps is not None:
                raise ValueError("link_mbps and connection_mbps are of a bucket, which a condition has with ttfb_ms")
            return
        if self.disk is not None or self.cache != "first":
            raise ValueError('a condition with ttfb_ms reads from a bucket: it has no disk, and its cache is "first"')
        rates = [rate for rate in (self.link_mbps, self.connection_mbps) if rate is not None]
        if not 0 <= self.ttfb_ms < float("inf") or not all(0 < rate < float("inf") for rate in rates):
            raise ValueError("ttfb_ms is a number of milliseconds of at least 0, and rates are above 0")

    def _check_accelerators(self) -> None:
        if self.accelerator_ms is None:
            if self.consumer != "idle":
                raise ValueError("consumer is of accelerators, which a condition has with accelerator_ms")
            return
        if not 0 < self.accelerator_ms < float("inf"):
            raise ValueError(f"accelerator_ms is {self.accelerator_ms!r}, not a number of milliseconds above 0")
        if self.cache != "warm" or self.processes != 1 or self.consumer_ms:
            raise ValueError('a condition with accelerator_ms has cache "warm", one process and no consumer_ms')

    @property
    def form(self) -> str:
        """The output, and for tokens their encoding: "csr", "dense", "geneformer tokens" or "scgpt tokens"."""
        return f"{self.tokens} tokens" if self.tokens else self.output

    @property
    def where(self) -> str:
        """What the store is read from, if that is limited: the disk, or the link to a bucket; otherwise ""."""
        if self.ttfb_ms is None:
            return self.disk or ""
        rates = ((self.link_mbps, ""), (self.connection_mbps, " a connection"))
        parts = [f"{rate:,g} Mbit/s{of}" for rate, of in rates if rate is not None]
        return f"bucket, {', '.join([*parts, f'{self.ttfb_ms:g} ms'])}"

    @property
    def key(self) -> str:
        """12 hex digits that identify this condition: a hash of the fields that differ from their defaults."""
        defaults = {f.name: f.default for f in fields(self)} | EDITION_1
        values = {name: getattr(self, name) for name in defaults if getattr(self, name) != defaults[name]}
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:12]

    @property
    def order_key(self) -> str:
        """The key of the conditions with the same order: only output, regime, disk, link and processes differ."""
        return replace(
            self,
            output="csr",
            tokens=None,
            cache="cold",
            memory_fraction=None,
            memory_limit_bytes=None,
            disk=None,
            ttfb_ms=None,
            link_mbps=None,
            connection_mbps=None,
            consumer_ms=0.0,
            accelerator_ms=None,
            consumer="idle",
            processes=1,
        ).key

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

    warmup_s: the minimum of the warm-up. epoch_s: the time after which a warm-up no longer waits for the end of the
    first epoch, which it does in the regime "warm". measure_s: the minimum of the window. timeout_s: the time after
    which a worker is killed. order_s: the time after the window for which the order of the cells is recorded (0: not
    recorded).

    Raises ValueError for a negative duration; only warmup_s, epoch_s and order_s may be 0.
    """

    warmup_s: float = 30.0
    epoch_s: float = 60.0
    measure_s: float = 120.0
    timeout_s: float = 900.0
    order_s: float = 10.0

    def __post_init__(self) -> None:
        for f in fields(self):
            seconds = getattr(self, f.name)
            if not (seconds > 0 or (seconds == 0 and f.name in ("warmup_s", "epoch_s", "order_s"))):
                raise ValueError(f"{f.name} is {seconds!r}, not a positive number of seconds")
