"""Ratios compare rows that were measured in the same repeat."""

import subprocess
import sys
from pathlib import Path

import pytest

from analysis.tables import ratios
from harness.condition import Condition, Timing
from harness.errors import UserError
from harness.grids import expand
from harness.records.measurement import Measurement


def row(loader: str, repeat: int, rows: int, status: str = "ok", **fields: object) -> Measurement:
    condition = Condition(dataset="d", loader=loader, **fields)
    return Measurement(
        condition=condition,
        timing=Timing(),
        repeat=repeat,
        status=status,
        rows=rows,
        seconds=1.0,
        fetches=9.0,
        provenance={},
    )


def test_ratios_are_taken_within_a_repeat() -> None:
    zarr = {"knobs": (("block_size", 512),)}
    measured = [
        *(row("native_zarr_shuffled", i, rows, **zarr) for i, rows in enumerate((300, 400, 1000))),
        *(row("annbatch", i, rows) for i, rows in enumerate((100, 200))),
        row("annbatch", 2, 1, status="failed"),
    ]
    ours, theirs = {"loader": "native_zarr_shuffled"}, {"loader": "annbatch", "batch_size": 64}
    assert ratios.ratios(measured, ours, theirs) == [(300, 100), (400, 200)]
    table = ratios.markdown("native", measured)
    assert "| annbatch's zarr, batch 64: native / annbatch | 350 | 150 | 2.5 (2.0 to 3.0) | 2 |" in table
    assert "| annbatch's zarr, batch 4096: native / annbatch | – | – | not measured | 0 |" in table


@pytest.mark.parametrize("grid", ratios.COMPARED)
def test_the_grid_contains_both_sides_of_every_ratio(grid: str) -> None:
    conditions = expand(grid, "d").conditions
    for name, *sides in ratios.COMPARED[grid]():
        for side in sides:
            assert any(ratios.fits(condition, side) for condition in conditions), name


@pytest.mark.parametrize("module", ["ratios", "demand", "ceilings"])
def test_missing_records_are_reported_in_one_sentence(module: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", f"analysis.tables.{module}", str(tmp_path / "native.jsonl")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.endswith("native.jsonl is not there\n")
    assert "Traceback" not in done.stderr


def test_a_grid_without_ratios_is_named() -> None:
    with pytest.raises(UserError, match="Unknown grid with ratios 'quick'"):
        ratios.table(Path("quick.jsonl"), "tahoe-mini")
