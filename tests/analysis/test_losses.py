"""Where ours loses: what is compared with what, and what counts as a loss."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest

from analysis import results
from analysis.tables import losses
from analysis.tables.losses import EQUAL, SAME_STORE, UNCONVERTED_OURS
from harness.condition import Condition, Timing
from harness.records import jsonl
from harness.records.measurement import Measurement

EDITION_2 = {"rules_edition": 2, "git_dirty": False, "dataset_fingerprint": "f", "code": "c", "utc": "2026"}
SINGLE = {"block_size": 1, "fetch_factor": 1}
BLOCKED = {"block_size": 16, "fetch_factor": 64}


def record(
    folder: Path,
    loader: str,
    rate: int,
    knobs: Mapping[str, int] = MappingProxyType({}),
    *,
    fetches: float = 9.0,
    **fields: object,
) -> Condition:
    """Appends two repeats, of `rate` and of 1.1 times that, to the records of a grid, and returns their condition."""
    provenance = fields.pop("provenance", EDITION_2)
    condition = Condition(dataset="d", loader=loader, knobs=tuple(knobs.items()), **fields)
    for repeat in range(2):
        m = Measurement(
            condition=condition, timing=Timing(), repeat=repeat, again=False, status="ok", rows=rate * (10 + repeat),
            seconds=10.0, fetches=fetches, provenance=provenance,
        )  # fmt: skip
        jsonl.append(folder / "g.jsonl", m)
    return condition


def compared(folder: Path) -> set[tuple[str, str, str, str]]:
    return {(c.kind, c.ours.loader, c.theirs.loader, c.outcome) for c in losses.comparisons(folder)}


def test_equal_settings_are_compared_from_the_same_store(tmp_path: Path) -> None:
    record(tmp_path, "native", 100, SINGLE)
    record(tmp_path, "native", 900, BLOCKED)
    record(tmp_path, "annloader", 200)
    record(tmp_path, "scdataset", 300, BLOCKED)
    record(tmp_path, "scdataset", 300, {**SINGLE, "fetch_factor": 4})
    assert {c for c in compared(tmp_path) if c[0] == EQUAL} == {
        (EQUAL, "native", "annloader", "lost"),
        (EQUAL, "native", "scdataset", "won"),
    }


def test_a_download_wins_no_comparison_of_ours(tmp_path: Path) -> None:
    bucket = {"cache": "first", "ttfb_ms": 30.0}
    record(tmp_path, "native", 100, BLOCKED, **bucket)
    record(tmp_path, "native_downloaded", 900, BLOCKED, **bucket)
    record(tmp_path, "scdataset", 300, BLOCKED, **bucket)
    assert compared(tmp_path) == {
        (EQUAL, "native", "scdataset", "lost"),
        (UNCONVERTED_OURS, "native", "scdataset", "lost"),
    }


def test_of_an_unfinished_frontier_nothing_is_compared(tmp_path: Path) -> None:
    record(tmp_path, "native", 100, BLOCKED)
    record(tmp_path, "scdataset", 300, BLOCKED)
    assert compared(tmp_path)
    (tmp_path / "g.jsonl").rename(tmp_path / "frontier.jsonl")
    assert not compared(tmp_path)


@pytest.mark.parametrize("different", [{"cache": "first"}, {"output": "dense"}, {"cores": 1}, {"batch_size": 16}])
def test_other_conditions_are_not_compared(tmp_path: Path, different: dict) -> None:
    record(tmp_path, "native", 100, SINGLE)
    record(tmp_path, "annloader", 200, **different)
    assert compared(tmp_path) == set()


def test_best_is_compared_with_best_over_workers_and_settings(tmp_path: Path) -> None:
    record(tmp_path, "native_arrow", 1_000, BLOCKED)
    record(tmp_path, "native_arrow", 10, SINGLE)
    record(tmp_path, "huggingface", 20)
    record(tmp_path, "huggingface", 1_500, workers=2)
    record(tmp_path, "native", 1_200, BLOCKED)
    record(tmp_path, "reference", 9_000)
    assert compared(tmp_path) == {
        (EQUAL, "native_arrow", "huggingface", "lost"),
        (SAME_STORE, "native_arrow", "huggingface", "lost"),
        (UNCONVERTED_OURS, "native", "huggingface", "lost"),
    }


@pytest.mark.parametrize(("bits", "buffer_rows"), [(2.0, 1_000), (3.6, 1_000_000)])
def test_less_diverse_settings_and_larger_buffers_do_not_hide_a_loss(
    tmp_path: Path, bits: float, buffer_rows: int
) -> None:
    blocked = record(tmp_path, "native", 1_000, BLOCKED)
    single = record(tmp_path, "native", 100, SINGLE)
    theirs = record(tmp_path, "annloader", 200, workers=1)
    assert compared(tmp_path) == {(UNCONVERTED_OURS, "native", "annloader", "won")}
    (tmp_path / "figures").mkdir()
    of_each = ((blocked, bits, buffer_rows), (single, 3.6, 64), (theirs, 3.59, 64))
    diversity = [f"plate,{c.key},{bits},3.6" for c, bits, _ in of_each]
    buffers = [f"{c.key},{rows},1000" for c, _, rows in of_each]
    stem = str(tmp_path / "figures" / "d-g")
    Path(f"{stem}-diversity.csv").write_text("\n".join(["label,key,entropy_bits,random_bits", *diversity]))
    Path(f"{stem}-table.csv").write_text("\n".join(["key,buffer_rows,values_per_cell", *buffers]))
    assert compared(tmp_path) == {(UNCONVERTED_OURS, "native", "annloader", "lost")}
    (comparison,) = losses.comparisons(tmp_path)
    assert comparison.diverse


def test_a_difference_within_the_a_a_spread_is_no_loss(tmp_path: Path) -> None:
    record(tmp_path, "native", 100, SINGLE)
    record(tmp_path, "annloader", 103)
    assert {c[3] for c in compared(tmp_path)} == {"lost"}
    for m in jsonl.read(tmp_path / "g.jsonl")[:2]:
        jsonl.append(tmp_path / "g.jsonl", replace(m, again=True, rows=round(1.05 * m.rows)))
    assert {c[3] for c in compared(tmp_path)} == {"no difference"}


def test_few_fetches_and_the_first_edition_are_left_out(tmp_path: Path) -> None:
    record(tmp_path, "native", 100, SINGLE)
    record(tmp_path, "annloader", 200, fetches=4.0)
    record(tmp_path, "scdataset", 200, SINGLE, provenance={"git_dirty": False})
    assert compared(tmp_path) == set()


def test_the_table_has_the_losses_by_factor_and_a_denominator(tmp_path: Path) -> None:
    record(tmp_path, "native", 100, SINGLE)
    record(tmp_path, "annloader", 200)
    record(tmp_path, "native", 100, SINGLE, output="dense")
    record(tmp_path, "annloader", 300, output="dense")
    record(tmp_path, "scdataset", 50, SINGLE)
    table = losses.markdown(losses.comparisons(tmp_path))
    assert f"| {EQUAL} | 3 | 2 | 1 | 0 |" in table
    assert f"| {UNCONVERTED_OURS} | 3 | 2 | 1 | 0 |" in table
    row = f"`annloader` defaults: 210 | `native` (1, 1): 105 | {EQUAL} | g, d | warm, random, csr, batch 64 | – |"
    assert f"| 2.00 (2.00 to 2.00) | {row}" in table
    assert table.index("3.00 (") < table.index("2.00 (")


def test_the_table_is_written_between_its_markers(tmp_path: Path) -> None:
    machine = tmp_path / "reference-2core"
    machine.mkdir()
    record(machine, "native", 100, SINGLE)
    record(machine, "annloader", 200)
    text = results.with_losses("a\n<!-- losses -->\nold\n<!-- /losses -->\nb\n", tmp_path)
    assert text.startswith(
        "a\n<!-- losses -->\n\nOn 2 cores of an AMD EPYC (`results/reference-2core`):\n\n| compared |"
    )
    assert text.endswith("\n\n<!-- /losses -->\nb\n")
    assert "old" not in text
    assert results.with_losses(text, tmp_path) == text
    assert "No measurement by the second edition" in results.with_losses(text, tmp_path / "none")
