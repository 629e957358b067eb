"""The README and the documents agree with the committed records."""

import re
from pathlib import Path

import pytest

from analysis import results
from analysis.tables import guarantees, headline
from harness.machine.host import ROOT

README = (ROOT / "README.md").read_text()
RESULTS, METHOD, ORDER = ((ROOT / "docs" / f"{name}.md").read_text() for name in ("results", "method", "order"))
REFERENCE = ROOT / "results" / "reference-2core"


def test_the_first_two_commands_set_up_and_run_everything() -> None:
    commands = re.findall(r"^make \w+", README, re.MULTILINE)
    assert commands[:2] == ["make bench", "make test"]


def test_the_table_in_the_readme_is_of_the_committed_records() -> None:
    table = headline.markdown(ROOT / "results" / "reference-2core")
    assert table.count("\n") == 2 + 8
    assert table in README


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= 150


def test_the_results_page_is_rendered_from_the_committed_records() -> None:
    assert results.render(ROOT / "results") == RESULTS


def test_the_table_of_guarantees_is_the_one_that_the_contract_tests_check() -> None:
    assert guarantees.markdown() in METHOD
    assert guarantees.line("annloader")[2:7] == ["not with workers"] * 5
    assert guarantees.line("scdataset")[5] == "not in random order with workers"
    assert guarantees.line("slaf")[2:7] == ["no", "yes", "no", "yes", "no"]


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))], ids=lambda page: page.name
)
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    text = page.read_text()
    for name in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
        assert (page.parent / name).exists(), name
    for name in re.findall(r"`((?:harness|loaders|loadstone|tests|docs)/[\w/.-]*)`", text):
        assert (ROOT / name).exists(), name


def test_the_training_table_is_that_of_the_committed_runs() -> None:
    assert (REFERENCE / "figures" / "tahoe-mini-training-table.md").read_text().rstrip() in ORDER
