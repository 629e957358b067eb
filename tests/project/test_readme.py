"""The README and the documents hold what the committed records say."""

import re
from pathlib import Path

import pytest

from analysis.tables import ceilings, demand, guarantees, ratios
from analysis.tables.summary import measured_on
from harness.machine.host import ROOT
from harness.records import ceiling, jsonl

README = (ROOT / "README.md").read_text()
RESULTS, METHOD, ORDER = ((ROOT / "docs" / f"{name}.md").read_text() for name in ("results", "method", "order"))
REFERENCE = ROOT / "results" / "reference-2core"
XEON = ROOT / "results" / "reference-2core-xeon"
READ_AHEAD = ROOT / "results" / "reference-2core-read-ahead-128k"


def test_the_first_two_commands_set_up_and_run_everything() -> None:
    commands = re.findall(r"^make \w+", README, re.MULTILINE)
    assert commands[:2] == ["make bench", "make test"]


def test_the_table_is_the_committed_one_and_the_readme_has_rows_of_it() -> None:
    table = (REFERENCE / "figures" / "tahoe-mini-quick-table.md").read_text().rstrip()
    assert table in RESULTS
    rows = re.findall(r"^\| \w+°? \| (?:random|stream) .*", README, re.MULTILINE)
    assert len(rows) == 8
    assert set(rows) <= set(table.splitlines())


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= 150


@pytest.mark.parametrize("grid", ["native", "bounded"])
def test_the_ratios_are_of_the_committed_measurements(grid: str) -> None:
    assert ratios.markdown(grid, measured_on("tahoe-mini", jsonl.read(REFERENCE / f"{grid}.jsonl"))) in RESULTS


@pytest.mark.parametrize("grid", ["native", "steady"])
def test_the_ratios_on_another_processor_are_of_the_committed_measurements(grid: str) -> None:
    measured = jsonl.read(XEON / f"{grid}.jsonl")
    assert {m.provenance["cpu"] for m in measured} == {"Intel(R) Xeon(R) Processor"}
    assert ratios.markdown(grid, measured) in RESULTS


def test_the_ratios_of_a_larger_set_are_of_the_committed_measurements() -> None:
    measured = measured_on("cells-1e6", jsonl.read(REFERENCE / "bounded.jsonl"))
    assert ratios.markdown("bounded", measured) in RESULTS


def test_what_reading_ahead_changes_is_of_the_committed_measurements() -> None:
    measured = jsonl.read(READ_AHEAD / "bounded.jsonl")
    assert {m.provenance["read_ahead_bytes"] for m in measured} == {128 * 1024}
    assert ratios.markdown("bounded", measured) in RESULTS


def test_who_keeps_up_is_of_the_committed_measurements() -> None:
    assert demand.markdown(measured_on("tahoe-mini", jsonl.read(REFERENCE / "loaders.jsonl"))) in RESULTS


def test_the_ceilings_are_of_the_committed_records() -> None:
    assert ceilings.markdown(ceiling.read(REFERENCE)) in RESULTS


def test_the_loaders_guarantees_are_those_the_contract_tests_assert() -> None:
    assert guarantees.markdown() in METHOD
    assert guarantees.line("annloader")[2:7] == ["not with workers"] * 5
    assert guarantees.line("scdataset")[5] == "not in random order with workers"
    assert guarantees.line("slaf")[2:7] == ["no", "yes", "no", "yes", "no"]


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))], ids=lambda page: page.name
)
def test_every_file_that_is_named_is_there(page: Path) -> None:
    text = page.read_text()
    for name in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
        assert (page.parent / name).exists(), name
    for name in re.findall(r"`((?:harness|loaders|loadstone|tests|docs)/[\w/.-]*)`", text):
        assert (ROOT / name).exists(), name


def test_what_was_learnt_is_of_the_committed_runs() -> None:
    assert (REFERENCE / "figures" / "tahoe-mini-training-table.md").read_text().rstrip() in ORDER
