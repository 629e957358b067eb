"""The README's first commands and its table are what they say they are."""

import re
from pathlib import Path

from harness.host import ROOT

README = (ROOT / "README.md").read_text()


def test_the_first_two_commands_set_up_and_run_everything() -> None:
    commands = re.findall(r"^make \w+", README, re.MULTILINE)
    assert commands[:2] == ["make bench", "make test"]


def test_the_table_is_the_committed_one() -> None:
    (table,) = ROOT.glob("results/*/figures/tahoe-mini-quick-table.md")
    assert table.read_text().rstrip() in README


def test_every_file_that_is_named_is_there() -> None:
    linked = re.findall(r"\]\(([^)#]+)\)", README)
    assert len(linked) >= 4
    for name in [*linked, *re.findall(r"`((?:harness|loaders|tests)/[\w/.]*)`", README)]:
        assert Path(ROOT / name).exists(), name
