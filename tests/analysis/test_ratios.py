"""Ratios compare rows that were measured in the same repeat, and tell a difference from chance."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from analysis.tables import compare, ratios
from harness.condition import Condition, Timing
from harness.errors import UserError
from harness.grids import expand
from harness.records.measurement import Measurement

BLOCKED = (("block_size", 16), ("fetch_factor", 64))
SINGLE = (("block_size", 1), ("fetch_factor", 1))


def row(loader: str, repeat: int, rows: int, status: str = "ok", fetches: float = 9.0, **fields: object) -> Measurement:
    again = fields.pop("again", False)
    return Measurement(
        condition=Condition(dataset="d", loader=loader, **fields),
        timing=Timing(),
        repeat=repeat,
        again=again,
        status=status,
        rows=rows,
        seconds=1.0,
        fetches=fetches,
        provenance={},
    )


def repeats(loader: str, *rates: int, **fields: object) -> list[Measurement]:
    return [row(loader, repeat, rate, **fields) for repeat, rate in enumerate(rates)]


def test_ratios_are_taken_within_a_repeat() -> None:
    measured = [
        *repeats("native", 300, 400, 1000, knobs=BLOCKED),
        *repeats("scdataset", 100, 200, knobs=BLOCKED),
        row("scdataset", 2, 1, status="failed", knobs=BLOCKED),
    ]
    ours, theirs = {"loader": "native", "block_size": 16}, {"loader": "scdataset", "batch_size": 64}
    assert ratios.ratios(measured, ours, theirs) == [(300, 100), (400, 200)]
    table = ratios.markdown("geometry", measured)
    assert (
        "| csr: `native` (16, 64) / `scdataset` (16, 64), equal settings | 350 | 150 | 2.33 (2.00 to 3.00) | 2 |"
        in table
    )
    assert "| csr: `native` (64, 64) / `scdataset` (64, 64) | – | – | – | 0 |" in table


def test_a_field_that_is_unknown_is_unequal() -> None:
    condition = Condition(dataset="d", loader="native", knobs=BLOCKED)
    assert ratios.fits(condition, {"block_size": 16, "disk": None})
    assert not ratios.fits(condition, {"chunk_size": 16})
    assert ratios.fits(condition, {"chunk_size": None})


def test_the_ratio_shown_is_that_of_the_medians_shown() -> None:
    measured = [*repeats("native", 100, 200, 900, knobs=BLOCKED), *repeats("scdataset", 10, 50, 60, knobs=BLOCKED)]
    table = ratios.markdown("geometry", measured)
    assert "| 200 | 50 | 4.00 (4.00 to 15.0) | 3 |" in table


def test_a_ratio_within_the_spread_of_the_a_a_pair_is_no_difference() -> None:
    measured = [*repeats("native", 100, 116, knobs=BLOCKED), *repeats("scdataset", 105, 105, knobs=BLOCKED)]
    assert "| 108 | 105 | 1.03 (0.952 to 1.10) | 2 |" in ratios.markdown("geometry", measured)
    measured += [replace(m, again=True, rows=90) for m in measured[:2]]
    table = ratios.markdown("geometry", measured)
    assert "| 108 | 105 | no difference (0.952 to 1.10) | 2 |" in table
    assert "A/A, the same condition twice in a repeat: 0.78 to 0.90 times." in table


def test_rows_with_few_fetches_enter_no_ratio() -> None:
    measured = [
        *repeats("native", 300, 400, knobs=BLOCKED),
        row("scdataset", 0, 100, knobs=BLOCKED),
        row("scdataset", 1, 10, fetches=4.9, knobs=BLOCKED),
    ]
    assert ratios.ratios(measured, {"loader": "native"}, {"loader": "scdataset"}) == []
    table = ratios.markdown("geometry", measured)
    assert "| csr: `native` (16, 64) / `scdataset` (16, 64)\\* | – | – | – | 0 |" in table
    assert "\\* fewer than 5 fetches in a window" in table


def condition(loader: str, knobs: tuple = (), **fields: object) -> Condition:
    return Condition(dataset="d", loader=loader, knobs=knobs, **fields)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (condition("native", BLOCKED), condition("scdataset", BLOCKED), True),
        (condition("native", BLOCKED), condition("scdataset", SINGLE), False),
        (condition("native_arrow", BLOCKED), condition("scdataset", BLOCKED), False),
        (condition("native", BLOCKED), condition("scdataset", BLOCKED, cache="first"), False),
        (condition("native", BLOCKED), condition("scdataset", BLOCKED, cores=1), False),
        (condition("native", SINGLE), condition("annloader"), True),
        (condition("native", BLOCKED), condition("annloader"), False),
        (condition("native", SINGLE), condition("annloader", workers=1), False),
        (condition("native_arrow", SINGLE), condition("huggingface"), True),
        (condition("native_arrow", SINGLE), condition("huggingface", (("iterable_buffer", 16),)), False),
        (condition("native_zarr_shuffled", SINGLE), condition("annbatch"), False),
    ],
)
def test_settings_are_equal_only_with_the_same_store_blocks_and_surroundings(
    one: Condition, other: Condition, same: bool
) -> None:
    assert compare.equal(one, other) is same


@pytest.mark.parametrize("grid", ratios.COMPARED)
def test_the_grid_contains_both_sides_of_every_ratio_under_one_regime_and_on_one_disk(grid: str) -> None:
    conditions = expand(grid, "d").conditions
    for name, *sides in ratios.COMPARED[grid]():
        for side in sides:
            assert len({(c.cache, c.disk) for c in conditions if ratios.fits(c, side)}) == 1, name


@pytest.mark.parametrize("module", ["ratios", "demand", "ceilings", "losses", "frontier"])
def test_missing_records_are_reported_in_one_sentence(module: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", f"analysis.tables.{module}", str(tmp_path / "native.jsonl")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.endswith("native.jsonl is not there\n")
    assert "Traceback" not in done.stderr


def test_a_grid_without_ratios_is_named() -> None:
    with pytest.raises(UserError, match="Unknown grid with ratios 'quick'"):
        ratios.table(Path("quick.jsonl"), "tahoe-mini")
