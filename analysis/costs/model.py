"""The time and the bill of training: T = cells x epochs / the lowest limit, and what is paid for T.

Nothing here is measured. A rate that a scenario states is an input, and a limit whose inputs are None does not apply.
"""

import math
from dataclasses import dataclass, fields, replace

HOUR_S = 3600.0
OF_A_PRODUCER = ("producers", "link", "requests")
"""The limits that more producers raise, since each has a link and connections of its own."""


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """What is trained, on what, and fed by whom; None: does not apply, or is not known.

    cells, epochs: how many cells an epoch has, and how many epochs. gpus: how many. gpu_cells_per_s: what one of them
    trains on. producers: how many nodes load. producer_cells_per_s: what one of them delivers.

    link_bytes_per_s: what all producers together read from the bucket. bytes_per_cell: what they read for a cell.
    connections: requests in flight, of all producers together. ttfb_s: from a request to its first byte.
    cells_per_request: how many cells a request delivers. ceiling_cells_per_s: any other limit of the whole, such as
    that of a queue.

    stored_bytes, stored_months: what is kept, and how long. conversion_s: the node seconds that making it takes, once.

    Raises ValueError for a number that cannot be, or if nothing limits the rate.
    """

    cells: float
    epochs: float = 1
    gpus: int = 0
    gpu_cells_per_s: float | None = None
    producers: int = 0
    producer_cells_per_s: float | None = None
    link_bytes_per_s: float | None = None
    bytes_per_cell: float | None = None
    connections: float | None = None
    ttfb_s: float | None = None
    cells_per_request: float | None = None
    ceiling_cells_per_s: float | None = None
    stored_bytes: float | None = None
    stored_months: float = 1
    conversion_s: float | None = None

    def __post_init__(self) -> None:
        for f in fields(self):
            value = getattr(self, f.name)
            least = 0 if f.name in ("gpus", "producers", "stored_bytes", "stored_months", "conversion_s") else None
            if value is None:
                continue
            if not math.isfinite(value) or value < 0 or (value == 0 and least is None):
                raise ValueError(f"{f.name} is {value!r}, not a number above 0")
        if self.link_bytes_per_s is not None and self.bytes_per_cell is None:
            raise ValueError("a link limits the rate only if the bytes of a cell are stated")
        if self.ttfb_s is not None and (self.connections is None or self.cells_per_request is None):
            raise ValueError("a time to the first byte limits the rate only with connections and cells a request")
        if not self.limits:
            raise ValueError("nothing limits the rate: state the rate of GPUs, of producers, or another limit")

    @property
    def limits(self) -> dict[str, float]:
        """The limits that apply, in cells/s, by name."""
        limits = {}
        if self.gpus and self.gpu_cells_per_s is not None:
            limits["GPUs"] = self.gpus * self.gpu_cells_per_s
        if self.producers and self.producer_cells_per_s is not None:
            limits["producers"] = self.producers * self.producer_cells_per_s
        if self.link_bytes_per_s is not None:
            limits["link"] = self.link_bytes_per_s / self.bytes_per_cell
        if self.ttfb_s is not None:
            limits["requests"] = self.connections / self.ttfb_s * self.cells_per_request
        if self.ceiling_cells_per_s is not None:
            limits["ceiling"] = self.ceiling_cells_per_s
        return limits


@dataclass(frozen=True, kw_only=True)
class Prices:
    """USD: of an hour of a GPU and of a node, a request, a byte that leaves, and a byte that is kept for a month."""

    gpu_usd_per_h: float = 0.0
    node_usd_per_h: float = 0.0
    request_usd: float = 0.0
    egress_usd_per_byte: float = 0.0
    storage_usd_per_byte_month: float = 0.0

    def __post_init__(self) -> None:
        for f in fields(self):
            value = getattr(self, f.name)
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{f.name} is {value!r}, not a price")


@dataclass(frozen=True, kw_only=True)
class Bill:
    """The time and the dollars of a scenario; None: not known.

    binds: the limit that is the lowest. cells_per_s: that limit. total_usd: the sum of what is known.
    """

    seconds: float
    cells_per_s: float
    binds: str
    gpu_hours: float
    node_hours: float
    gpu_usd: float
    node_usd: float
    requests_usd: float | None
    egress_usd: float | None
    storage_usd: float | None
    conversion_usd: float | None

    @property
    def hours(self) -> float:
        return self.seconds / HOUR_S

    @property
    def minutes(self) -> float:
        return self.seconds / 60

    @property
    def total_usd(self) -> float:
        rest = (self.requests_usd, self.egress_usd, self.storage_usd, self.conversion_usd)
        return self.gpu_usd + self.node_usd + sum(part for part in rest if part is not None)


def bill(scenario: Scenario, prices: Prices) -> Bill:
    """The time and the dollars of a scenario. GPUs and producers are paid for as long as it takes, waiting or not."""
    limits = scenario.limits
    binds = min(limits, key=limits.__getitem__)
    cells = scenario.cells * scenario.epochs
    seconds = cells / limits[binds]
    gpu_hours, node_hours = (n * seconds / HOUR_S for n in (scenario.gpus, scenario.producers))
    a_request, a_cell, stored, conversion = (
        scenario.cells_per_request, scenario.bytes_per_cell, scenario.stored_bytes, scenario.conversion_s,
    )  # fmt: skip
    return Bill(
        seconds=seconds,
        cells_per_s=limits[binds],
        binds=binds,
        gpu_hours=gpu_hours,
        node_hours=node_hours,
        gpu_usd=gpu_hours * prices.gpu_usd_per_h,
        node_usd=node_hours * prices.node_usd_per_h,
        requests_usd=None if a_request is None else cells / a_request * prices.request_usd,
        egress_usd=None if a_cell is None else cells * a_cell * prices.egress_usd_per_byte,
        storage_usd=None if stored is None else stored * prices.storage_usd_per_byte_month * scenario.stored_months,
        conversion_usd=None if conversion is None else conversion / HOUR_S * prices.node_usd_per_h,
    )


def feeding(cells_per_s: float, producer_cells_per_s: float) -> int:
    """The fewest producers that deliver `cells_per_s`."""
    return max(1, math.ceil(cells_per_s / producer_cells_per_s))


def fleet(one: Scenario, producers: int) -> Scenario:
    """The scenario of one producer with `producers` of them, each with a link and connections of its own.

    0: what loads is free and never binds.
    """
    if not producers:
        return replace(one, producers=0, link_bytes_per_s=None, ttfb_s=None)
    link, connections = one.link_bytes_per_s, one.connections
    return replace(
        one,
        producers=producers,
        link_bytes_per_s=None if link is None else link * producers,
        connections=None if connections is None else connections * producers,
    )


def fed(one: Scenario) -> Scenario:
    """The scenario of one producer with as many as its GPUs need; unchanged without GPUs, or a limit of a producer."""
    of_one = [rate for name, rate in one.limits.items() if name in OF_A_PRODUCER]
    demand = one.limits.get("GPUs")
    return fleet(one, feeding(demand, min(of_one))) if of_one and demand else one
