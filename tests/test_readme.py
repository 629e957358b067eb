"""The README's first commands and its table are what they say they are."""

import re
from pathlib import Path

import pytest

from analysis import demand, guarantees, ratios, roofline
from analysis.summary import measured_on
from harness import ceiling, results
from harness.host import ROOT

README = (ROOT / "README.md").read_text()
REFERENCE = ROOT / "results" / "reference-2core"
XEON = ROOT / "results" / "reference-2core-xeon"
READ_AHEAD = ROOT / "results" / "reference-2core-read-ahead-128k"


def test_the_first_two_commands_set_up_and_run_everything() -> None:
    commands = re.findall(r"^make \w+", README, re.MULTILINE)
    assert commands[:2] == ["make bench", "make test"]


def test_the_table_is_the_committed_one() -> None:
    assert (REFERENCE / "figures" / "tahoe-mini-quick-table.md").read_text().rstrip() in README


@pytest.mark.parametrize("grid", ["native", "bounded"])
def test_the_ratios_are_of_the_committed_measurements(grid: str) -> None:
    assert ratios.markdown(grid, measured_on("tahoe-mini", results.read(REFERENCE / f"{grid}.jsonl"))) in README


@pytest.mark.parametrize("grid", ["native", "steady"])
def test_the_ratios_on_another_processor_are_of_the_committed_measurements(grid: str) -> None:
    measured = results.read(XEON / f"{grid}.jsonl")
    assert {m.provenance["cpu"] for m in measured} == {"Intel(R) Xeon(R) Processor"}
    assert ratios.markdown(grid, measured) in README


def test_the_ratios_of_a_larger_set_are_of_the_committed_measurements() -> None:
    measured = measured_on("cells-1e6", results.read(REFERENCE / "bounded.jsonl"))
    assert ratios.markdown("bounded", measured) in README


def test_what_reading_ahead_changes_is_of_the_committed_measurements() -> None:
    measured = results.read(READ_AHEAD / "bounded.jsonl")
    assert {m.provenance["read_ahead_bytes"] for m in measured} == {128 * 1024}
    assert ratios.markdown("bounded", measured) in README


def test_who_keeps_up_is_of_the_committed_measurements() -> None:
    assert demand.markdown(measured_on("tahoe-mini", results.read(REFERENCE / "loaders.jsonl"))) in README


def test_the_ceilings_are_of_the_committed_records() -> None:
    assert roofline.markdown(ceiling.read(REFERENCE)) in README


def test_the_loaders_guarantees_are_those_the_contract_tests_assert() -> None:
    assert guarantees.markdown() in README
    assert guarantees.line("annloader")[2:7] == ["not with workers"] * 5
    assert guarantees.line("scdataset")[5] == "not in random order with workers"
    assert guarantees.line("slaf")[2:7] == ["no", "yes", "no", "yes", "no"]


def test_every_file_that_is_named_is_there() -> None:
    linked = re.findall(r"\]\(([^)#]+)\)", README)
    assert len(linked) >= 4
    for name in [*linked, *re.findall(r"`((?:harness|loaders|tests|docs)/[\w/.]*)`", README)]:
        assert Path(ROOT / name).exists(), name


def test_what_was_learnt_is_of_the_committed_runs() -> None:
    assert (REFERENCE / "figures" / "tahoe-mini-training-table.md").read_text().rstrip() in README
