"""The dated prices of prices.toml."""

import math
import tomllib
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from analysis.costs.model import Prices
from harness.errors import UserError, unknown

FILE = Path(__file__).with_name("prices.toml")
PER = {"gpu": "hour", "node": "hour", "requests": "million requests", "egress": "GB", "storage": "GB and month"}
"""The unit of a price, by its kind."""
GB = 1e9


@dataclass(frozen=True, kw_only=True)
class Price:
    """One price in USD, per unit of PER. as_of: the day on which it was written down. cores, memory_gib: of a node.

    Raises ValueError for a price that cannot be.
    """

    id: str
    kind: str
    usd: float
    as_of: date
    source: str
    cores: int | None = None
    memory_gib: float | None = None

    def __post_init__(self) -> None:
        if self.kind not in PER:
            raise ValueError(f"its kind is {self.kind!r}, not one of {', '.join(PER)}")
        if isinstance(self.usd, bool) or not isinstance(self.usd, int | float) or not 0 <= self.usd < math.inf:
            raise ValueError(f"its usd is {self.usd!r}, not a number of at least 0")
        if type(self.as_of) is not date or not self.source:
            raise ValueError("it needs as_of, a date, and source")
        if (self.kind == "node") != (type(self.cores) is int and self.cores > 0):
            raise ValueError("a node, and nothing else, has a number of cores")


def read(path: Path = FILE) -> list[Price]:
    """The prices of a file, in its order. Raises UserError if it cannot be read, or lacks a kind."""
    try:
        prices = [Price(**values) for values in tomllib.loads(path.read_text())["price"]]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise UserError(f"{path} is no file of prices: {error}.") from error
    if missing := set(PER) - {price.kind for price in prices}:
        raise UserError(f"{path} has no price of these kinds: {', '.join(sorted(missing))}.")
    return prices


def choose(prices: list[Price], kind: str, name: str | None) -> Price:
    """The price of a kind with this id; the first of the kind for None. Raises UserError for an unknown id."""
    of_kind = {price.id: price for price in reversed(prices) if price.kind == kind}
    if name is None:
        return next(price for price in prices if price.kind == kind)
    if name not in of_kind:
        raise unknown(f"price of {kind}", name, of_kind)
    return of_kind[name]


def of(chosen: dict[str, Price]) -> Prices:
    """The prices of a bill, by kind as in PER."""
    return Prices(
        gpu_usd_per_h=chosen["gpu"].usd,
        node_usd_per_h=chosen["node"].usd,
        request_usd=chosen["requests"].usd / 1e6,
        egress_usd_per_byte=chosen["egress"].usd / GB,
        storage_usd_per_byte_month=chosen["storage"].usd / GB,
    )


def markdown(chosen: dict[str, Price]) -> str:
    """The prices used, with their days and sources."""
    lines = ["| price | USD | per | as of | source |", "| --- | ---: | --- | --- | --- |"]
    for kind, price in chosen.items():
        what = f"{kind}, `{price.id}`" + (f" ({price.cores} cores)" if price.cores else "")
        lines.append(f"| {what} | {price.usd:g} | {PER[kind]} | {price.as_of} | {price.source} |")
    return "\n".join(lines) + "\n"
