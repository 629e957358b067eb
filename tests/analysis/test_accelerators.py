"""The table and the figure of emulated accelerators, on records made by hand."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from analysis.figures import accelerators as figure
from analysis.tables import accelerators, losses
from harness.condition import Condition, Timing
from harness.machine.host import ROOT
from harness.records import jsonl
from harness.records.measurement import Measurement


def row(loader: str, fed: int, probes: list[list[float]], repeat: int = 0, **fields: object) -> Measurement:
    condition = Condition(
        dataset="tahoe-mini", loader=loader, batch_size=240, **{"accelerator_ms": 60.0, "consumer": "idle"} | fields
    )
    return Measurement(
        condition=condition, timing=Timing(), repeat=repeat, again=False, status="ok", rows=2400, seconds=1.0,
        fetches=9.0, accelerators=fed, probes=probes,
        provenance={"code": "c", "git_dirty": False, "utc": "2026", "rules_edition": 2},
    )  # fmt: skip


ROWS = [
    row("native", 20, [[20, 0.91, 2.0], [21, 0.89, 2.0]]),
    row("native", 24, [[24, 0.91, 2.0], [25, 0.89, 2.0]], repeat=1),
    row("native", 12, [[12, 0.91, 2.0], [13, 0.89, 2.0]], consumer="busy"),
    row("native", 110, [[110, 0.91, 2.0], [115, 0.89, 2.0]], accelerator_ms=285.0),
    row("memmap", 583, [[583, 0.95, 2.0]], accelerator_ms=285.0),
    row("memmap", 20, [[20, 0.95, 2.0], [21, 0.8, 2.0]]),
    row("scdataset", 0, [[1, 0.43, 2.0]]),
    row("native_arrow", 5, [[5, 0.93, 2.0], [6, 0.8, 2.0]]),
    row("huggingface", 8, [[8, 0.93, 2.0], [9, 0.8, 2.0]], workers=2),
]
FAILED = Measurement(
    condition=Condition(dataset="tahoe-mini", loader="slaf", accelerator_ms=60.0), timing=Timing(), repeat=0,
    status="timeout", reason="no result after 300 s",
)  # fmt: skip


def test_the_table_begins_with_where_ours_loses() -> None:
    text = accelerators.markdown(accelerators.table([*ROWS, FAILED]))
    first, rest = text.split("| loader |")
    assert "At 285 ms `native` feeds 110, and more: `memmap` defaults (583)." in first
    assert "At 60 ms `native_arrow` feeds 5, and more: `huggingface` workers=2 (8)." in first
    assert "`native` feeds 22" not in first
    assert rest.startswith(" setting | 60 ms, one core busy | 60 ms | 285 ms | repeats |")
    assert "| `native` | defaults | 12 | 22 (20 to 24) | 110 | 1 |" in rest
    assert "| `memmap` | defaults | – | 20 | at least 583 | 1 |" in rest
    assert "| `scdataset` | defaults | – | 0, one at 43% | – | 1 |" in rest
    assert "slaf defaults: timeout, no result after 300 s." in rest


def test_a_table_without_ours_does_not_say_that_ours_wins() -> None:
    text = accelerators.markdown(accelerators.table([ROWS[-1]]))
    assert "- At 60 ms `native` has no number here." in text
    assert "No loader here" not in text


def test_the_second_of_a_pair_is_not_in_the_table() -> None:
    again = replace(ROWS[0], again=True)
    assert accelerators.table([ROWS[0], again])["repeats"].tolist() == [1]


def test_the_noise_of_a_pair_is_stated() -> None:
    (sentence,) = accelerators.chance([*ROWS, replace(ROWS[0], again=True, accelerators=14)])
    assert sentence == "A/A, the same condition twice in a repeat (`native`, 60 ms): 20 and 14 accelerators."
    assert sentence in accelerators.markdown(accelerators.table(ROWS), [sentence])


def test_the_figure_has_a_dot_for_each_row_with_a_number() -> None:
    drawn = figure.draw(accelerators.table([*ROWS, FAILED]), "tahoe-mini")
    (ax,) = drawn.figure.axes
    dots = [line for line in ax.lines if line.get_marker() == "o"]
    assert sum(len(line.get_xdata()) for line in dots) == len(drawn.numbers) == 8
    assert min(min(line.get_xdata()) for line in dots) == figure.NONE
    assert [line.get_markerfacecolor() == "none" for line in dots] == [True, False, False]
    assert [tick.get_text() for tick in ax.get_yticklabels()][-1] == "memmap"
    assert figure.draw(accelerators.table([FAILED]), "tahoe-mini") is None


def test_a_folder_is_printed_and_its_rows_are_in_no_table_of_throughput(tmp_path: Path) -> None:
    for m in ROWS:
        jsonl.append(tmp_path / "accelerators.jsonl", m)
    assert losses.comparisons(tmp_path) == []
    command = [sys.executable, "-m", "analysis.tables.accelerators", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == accelerators.of_folder(tmp_path, "tahoe-mini")
    other = subprocess.run([*command, "cells-2e6"], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert other.returncode == 2
    assert "has no measurement of the grid accelerators on cells-2e6." in other.stderr


@pytest.mark.parametrize("name", ["60 ms", "60 ms, one core busy"])
def test_an_arm_has_its_name(name: str) -> None:
    assert accelerators.arm(60.0, "busy" if "busy" in name else "idle") == name
