"""Grids: each is the set of conditions of one table or figure, defined in grids.toml."""

import itertools
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import psutil

import loaders
from harness.condition import Condition, Timing
from harness.data.dataset import Dataset
from harness.errors import UserError, unknown

GRIDS = Path(__file__).with_name("grids.toml")
CSR_BYTES = 8  # of a stored count: a float32 value and an int32 gene
SHARE_OF_MEMORY = 0.5  # that the largest store, uncompressed CSR, may fill in the regime "warm"


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """The conditions of one figure or table.

    pair: the condition that is measured twice in each repeat. axis: for a grid that shows scaling, the column of its
    table that becomes the x axis of its figure; else None.
    """

    name: str
    title: str
    timing: Timing
    conditions: tuple[Condition, ...]
    axis: str | None = None

    @property
    def pair(self) -> Condition:
        return self.conditions[0]


@cache
def _grids() -> dict[str, Any]:
    return tomllib.loads(GRIDS.read_text())


def grid_of(name: str, dataset: Dataset) -> Grid:
    """The grid `name` on a data set, in the regime "warm" if it fits into memory, else "first", as from a bucket."""
    fits = not dataset.is_remote and CSR_BYTES * dataset.nnz < SHARE_OF_MEMORY * psutil.virtual_memory().total
    return expand(name, dataset.name, "warm" if fits else "first")


def expand(name: str, dataset: str, cache: str = "warm") -> Grid:
    """The grid `name` of grids.toml on the data set called `dataset`.

    Each arm stands for all combinations of the values in its lists; a condition in several arms is kept once. Values of
    the grid's table `every` apply to all of its arms. cache: the regime of the arms that name none.
    `loader = "all"` in an arm stands for all loaders except those in the arm's list `without`. Raises UserError for an
    unknown name, or a table that is not valid.
    """
    tables = _grids()
    if name not in tables:
        raise unknown("grid", name, tables)
    table = tables[name]
    conditions: dict[Condition, None] = {}
    try:
        for arm in table["arm"]:
            knobs = arm.get("knobs", {})
            arm = {"cache": cache} | table.get("every", {}) | arm
            axes = {key: value for key, value in arm.items() if key not in ("knobs", "without")}
            if axes.get("loader") == "all":
                axes["loader"] = _all_but(arm.get("without", []))
            for values in _product(axes):
                if values["cache"] != "bounded":
                    values.pop("memory_limit_bytes", None)
                for chosen in _product(knobs):
                    conditions[Condition(dataset=dataset, **values, knobs=tuple(chosen.items()))] = None
        timing = Timing(**table.get("timing", {}))
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{GRIDS.name}, table [{name}]: {error}.") from error
    return Grid(name=name, title=table["title"], timing=timing, conditions=tuple(conditions), axis=table.get("axis"))


def _all_but(without: Sequence[str]) -> list[str]:
    """The names of all loaders except `without`. Raises ValueError for an unknown name."""
    if unknown_names := [name for name in without if name not in loaders.NAMES]:
        raise ValueError(f"there is no loader {', '.join(unknown_names)} to leave out")
    return [name for name in loaders.NAMES if name not in without]


def grid_names() -> tuple[str, ...]:
    """The names of the grids in grids.toml, in the order of that file."""
    return tuple(_grids())


def datasets(name: str) -> tuple[str, ...]:
    """The names of the data sets that a grid compares; () for a grid that runs on any data set."""
    return tuple(_grids().get(name, {}).get("datasets", ()))


def _product(axes: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every combination of one value from each axis, as dicts with the keys of `axes`.

    axes: the list of values by name; a value that is not a list counts as a list of one.
    """
    lists = [value if isinstance(value, list) else [value] for value in axes.values()]
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*lists)]
