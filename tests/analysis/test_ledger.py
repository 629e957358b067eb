"""Every claim of the ledger says what it needs to be judged, and can be measured by one of the grids."""

from dataclasses import fields
from pathlib import Path

import pytest

import loaders
from analysis.tables.claims import judge, ledger
from analysis.tables.claims.ledger import Claim
from analysis.tables.ratios import fits
from harness.grids import expand, grid_names
from tests.analysis.test_claims import LEDGER, RATIO

OF_RATIOS = [claim for claim in LEDGER if claim.by == "ratio"]


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"kind": "none"}, "no kind of claim"),
        ({"by": "guess"}, "no kind of claim"),
        ({"published": None}, "needs published"),
        ({"grid": ""}, "needs grid"),
        ({"tolerance": None}, "tolerance"),
        ({"within": 0.1}, "tolerance"),
        ({"quote": ""}, "quotation"),
        ({"quote": "word " * 26}, "quotation"),
        ({"source_kind": "repository"}, "a source and a commit"),
        ({"source_kind": "repository", "quote": "", "source": "owner/name, file"}, "a source and a commit"),
        ({"under": {"output": "csr", "batch_size": 64, "workers": 0}}, "does not state cache"),
        ({"theirs": {}}, "does not state loader"),
        ({"kind": "shape", "by": "", "tolerance": None}, "needs shape"),
        ({"kind": "shape", "by": "", "tolerance": None, "shape": {"product": [], "over": []}}, "least or most"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_a_claim_that_lacks_something_is_refused(wrong: dict, why: str) -> None:
    values = {f.name: getattr(RATIO, f.name) for f in fields(RATIO)}
    with pytest.raises(ValueError, match=why):
        Claim(**values | wrong)


def test_a_file_holds_claims_and_tables_of_them(tmp_path: Path) -> None:
    (tmp_path / "one.toml").write_text("""
document = "d"
[[claim]]
id = "a"
says = "A"
quote = "q"
kind = "untestable here"
needs = "a year"
[[table]]
id = "t-{size}"
says = "{what} of {size}"
columns = ["size", "what", "law.product", "quote"]
rows = [[1, "one", [1, 2], "first {q}"], [2, "two", [3], "second"]]
kind = "law"
law = { formula = "quotient" }
""")
    first, second, third = ledger.read(tmp_path)
    assert (first.id, first.document) == ("a", "d")
    assert (second.id, second.says, second.quote, second.law["product"]) == ("t-1", "one of 1", "first {q}", [1, 2])
    assert (third.id, third.says, third.law) == ("t-2", "two of 2", {"formula": "quotient", "product": [3]})


def test_every_claim_has_an_id_of_its_own() -> None:
    assert len({claim.id for claim in LEDGER}) == len(LEDGER) > 100


def test_every_number_has_a_source_of_one_of_two_kinds() -> None:
    """`Claim` refuses others; this sees that both kinds are told apart in what is printed."""
    assert {claim.source_kind for claim in LEDGER} == {"document", "repository"}
    for claim in LEDGER:
        assert bool(claim.quote) == (claim.source_kind == "document"), claim.id
        assert bool(claim.source and claim.commit) == (claim.source_kind == "repository"), claim.id


def test_no_document_s_system_is_replaced_by_ours() -> None:
    assert not [c.id for c in OF_RATIOS if any(side["loader"].startswith("native") for side in c.sides)]


@pytest.mark.parametrize("claim", [c for c in LEDGER if c.kind in ("measured", "entropy")], ids=lambda c: c.id)
def test_a_side_states_block_size_and_fetch_factor_where_its_loader_has_them(claim: Claim) -> None:
    if claim.kind == "measured" and claim.by != "ratio":
        return
    for side in claim.sides:
        knobs = loaders.get(side["loader"]).knobs
        assert {"block_size", "fetch_factor"} & {*knobs} <= {*side}, side


@pytest.mark.parametrize("claim", OF_RATIOS, ids=lambda c: c.id)
def test_both_sides_of_a_ratio_are_in_its_grid(claim: Claim) -> None:
    for side in claim.sides:
        setting = judge.stated(side, judge.NOT_COMPARED)
        assert any(fits(condition, setting) for condition in expand(claim.grid, "tahoe-mini").conditions), side


@pytest.mark.parametrize(
    "claim", [c for c in LEDGER if c.kind == "shape" and c.grid in grid_names()], ids=lambda c: c.id
)
def test_every_side_of_a_shape_is_in_its_grid(claim: Claim) -> None:
    for side in claim.sides:
        setting = judge.stated(side, judge.NOT_COMPARED)
        assert any(fits(condition, setting) for condition in expand(claim.grid, "tahoe-chunks").conditions), side


@pytest.mark.parametrize("claim", [c for c in LEDGER if c.kind == "entropy"], ids=lambda c: c.id)
def test_the_order_of_an_entropy_is_in_one_of_its_grids(claim: Claim) -> None:
    setting = judge.stated(claim.sides[0], judge.NOT_COMPARED | judge.NOT_OF_THE_ORDER)
    grids = [expand(name, "tahoe-mini") for name in claim.grids]
    assert any(fits(condition, setting) for grid in grids for condition in grid.conditions)
