"""A section of the results page appears with the records that it shows."""

import shutil
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import pytest

import loaders
from analysis import results
from harness.grids import expand
from harness.machine.host import ROOT
from harness.records import jsonl
from harness.records.measurement import Measurement
from tests.harness.test_steps import RUN as FED

MACHINE = "reference-2core-xeon"
SECTIONS = {
    ("geometry", "tahoe-chunks"): "## Small chunks and large chunks",
    ("figure34-short", "tahoe-mini"): "## Arrow and SCDL",
    ("regimes", "cells-2e6"): "`GRID=regimes",
    ("disks", "cells-2e6"): "`GRID=disks",
    ("scdl", "cells-2e6"): "`GRID=scdl",
}


@pytest.fixture
def committed(tmp_path: Path) -> Path:
    """A copy of the results folder without pictures and orders, and without measurements by the present rules."""
    unneeded = shutil.ignore_patterns(
        "*.png", "*.pdf", "orders", "frontier.jsonl", "accelerators.jsonl", *(f"{g}.jsonl" for g, _ in SECTIONS)
    )
    return shutil.copytree(ROOT / "results", tmp_path / "results", ignore=unneeded)


def test_the_most_accelerators_appear_with_their_records(committed: Path) -> None:
    title = "## How many accelerators a loader feeds"
    assert title not in results.render(committed)
    grid = expand("accelerators", "tahoe-mini")
    m = Measurement(
        condition=grid.pair, timing=grid.timing, repeat=0, again=False, status="ok", rows=100, seconds=1.0, fetches=9.0,
        accelerators=7, probes=[[7, 0.9, 2.0], [8, 0.8, 2.0]],
        provenance={"git_dirty": False, "code": "c", "utc": "3", "rules_edition": 2},
    )  # fmt: skip
    jsonl.append(committed / MACHINE / "accelerators.jsonl", m)
    page = results.render(committed)
    assert page.count(title) == 1
    assert "| `native` | fetch_factor=68 | 7 | 1 |" in page


SOME = ("native", "scdataset", "annloader", "native_bionemo", "bionemo")


def measure(records: Path, dataset: str, edition: int | None = 2, of: Collection[str] = SOME) -> None:
    """Appends one measurement of each condition of a grid that is of one of these loaders."""
    grid = expand(records.stem, dataset)
    for condition in grid.conditions:
        if condition.loader in of:
            m = Measurement(
                condition=condition, timing=grid.timing, repeat=0, again=False, status="ok", rows=100, seconds=1.0,
                fetches=9.0, provenance={"git_dirty": False, "code": "c", "utc": "3", "rules_edition": edition},
            )  # fmt: skip
            jsonl.append(records, m)


@pytest.mark.parametrize(("grid", "dataset"), SECTIONS)
def test_a_section_appears_with_its_records(grid: str, dataset: str, committed: Path) -> None:
    page = results.render(committed)
    assert not any(section in page for section in SECTIONS.values())
    records = committed / MACHINE / f"{grid}.jsonl"
    measure(records, dataset, edition=None)
    assert results.render(committed) == page
    measure(records, dataset)
    page = results.render(committed)
    assert [section in page for section in SECTIONS.values()] == [name == grid for name, _ in SECTIONS]
    assert "| 100 | 100 | no difference | 1 |" in page
    assert "\n\n\n" not in page


def test_the_frontier_shows_the_tables_that_were_written_once_every_setting_was_tried(committed: Path) -> None:
    (committed / MACHINE / "figures" / "tahoe-chunks-frontier-best.md").write_text("Regime warm\n")
    records = committed / MACHINE / "frontier.jsonl"
    measure(records, "tahoe-chunks")
    assert "## The best settings" not in results.render(committed)
    measure(records, "tahoe-chunks", of=set(loaders.NAMES) - set(SOME))
    page = results.render(committed)
    assert "## The best settings at equal diversity" in page
    assert "On `tahoe-chunks`" in page
    assert "Regime warm" in page
    assert "\n\n\n" not in page


def test_training_steps_appear_with_their_records_from_any_machine(committed: Path) -> None:
    for path in committed.glob("*/steps.jsonl"):
        path.unlink()
    assert "## Training steps" not in results.render(committed)
    (committed / "with-a-gpu").mkdir()
    jsonl.append(committed / "with-a-gpu" / "steps.jsonl", replace(FED, device="NVIDIA H200"))
    page = results.render(committed)
    assert "## Training steps" in page
    assert "on NVIDIA H200 in float32" in page
    assert "results/with-a-gpu/steps.jsonl" in page
    assert "\n\n\n" not in page


def test_tokens_have_a_section_with_their_records(committed: Path) -> None:
    for records in committed.glob("*/tokens.jsonl"):
        records.unlink()
    assert "## Tokens" not in results.render(committed)
    (committed / MACHINE / "figures" / "tahoe-mini-tokens-table.md").write_text("The table of tokens\n")
    measure(committed / MACHINE / "tokens.jsonl", "tahoe-mini")
    page = results.render(committed)
    assert "## Tokens" in page
    assert "The table of tokens" in page
    assert "| geneformer: `native` / `scdataset`" in page
    assert "\n\n\n" not in page
