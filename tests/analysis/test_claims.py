"""The verdict of a claim follows from its numbers; only rows under its conditions, of one commit, count."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis import report
from analysis.tables.claims import judge, ledger, table
from analysis.tables.claims.ledger import Claim
from harness.condition import Condition, Timing
from harness.model.sizes import SIZES
from harness.records import cost, jsonl, orders, training
from harness.records.measurement import Measurement

QUOTED = {"id": "c", "document": "d", "says": "s", "quote": "ten times"}
RATIO = Claim(
    **QUOTED, kind="measured", by="ratio", published=10.0, unit="times", tolerance=0.5, grid="g",
    under={"output": "csr", "batch_size": 64, "workers": 0, "cache": "warm"},
    ours={"loader": "native", "block_size": 16, "fetch_factor": 4}, theirs={"loader": "annloader"},
)  # fmt: skip
LEDGER = ledger.read()


def row(
    loader: str, repeat: int, rows: float, *, fetches: float = 9.0, facts: dict | None = None, **changed: Any
) -> Measurement:
    knobs = {"block_size": 16, "fetch_factor": 4} if loader == "native" else {}
    settings = {"dataset": "tahoe-mini", "cache": "warm"} | changed
    knobs |= {name: settings.pop(name) for name in ("block_size", "fetch_factor") if name in settings}
    return Measurement(
        condition=Condition(loader=loader, knobs=tuple(knobs.items()), **settings), timing=Timing(), repeat=repeat,
        status="ok", rows=rows, seconds=1.0, fetches=fetches, provenance=facts or {},
    )  # fmt: skip


def both(folder: Path, ours: list[float], **changed: Any) -> Path:
    """Rows of both sides in `folder`, a repeat for each rate of `ours`; theirs has 100 cells/s."""
    for repeat, rate in enumerate(ours):
        jsonl.append(folder / "g.jsonl", row("native", repeat, rate, **changed))
        theirs = {name: value for name, value in changed.items() if name not in ("block_size", "fetch_factor")}
        jsonl.append(folder / "g.jsonl", row("annloader", repeat, 100, **theirs))
    return folder


@pytest.mark.parametrize(
    ("changed", "verdict"),
    [
        ({}, "reproduced"),
        ({"published": 19.0}, "reproduced"),
        ({"published": 21.0}, "differs"),
        ({"published": 7.0}, "reproduced"),
        ({"published": 6.0}, "differs"),
        ({"published": 10.4, "tolerance": None, "within": 0.5}, "reproduced"),
        ({"published": 10.6, "tolerance": None, "within": 0.5}, "differs"),
    ],
)
def test_a_ratio_is_judged_by_a_tolerance_on_both_sides(tmp_path: Path, changed: dict, verdict: str) -> None:
    judgement = judge.judge(replace(RATIO, **changed), both(tmp_path, [900, 1000, 1100]), {})
    assert (judgement.verdict, judgement.measured, judgement.repeats) == (verdict, 10.0, 3)
    assert judgement.low <= 10 <= judgement.high
    assert np.isnan(judgement.law)


def test_one_side_alone_is_judged_by_its_cells_per_second(tmp_path: Path) -> None:
    claim = replace(RATIO, published=1000.0, theirs=None)
    assert judge.judge(claim, both(tmp_path, [900, 1000, 1100]), {}).measured == 1000.0


def test_the_data_set_of_the_paper_comes_before_its_substitute_and_no_other_counts(tmp_path: Path) -> None:
    both(tmp_path, [9000] * 3, dataset="cells-1e6")
    assert judge.judge(RATIO, tmp_path, {}).verdict == "not measured"
    both(tmp_path, [1000] * 3)
    assert judge.judge(RATIO, tmp_path, {}).measured == 10.0
    both(tmp_path, [1100] * 3, dataset="tahoe")
    assert judge.judge(RATIO, tmp_path, {}).measured == 11.0


def test_two_repeats_give_no_verdict_but_a_command(tmp_path: Path) -> None:
    judgement = judge.judge(RATIO, both(tmp_path, [1000, 1000]), {})
    assert (judgement.verdict, judgement.repeats) == ("not measured", 2)
    assert judgement.because == "2 of 3 repeats: GRID=g LOADERS=native,annloader REPEAT=3 make bench"


@pytest.mark.parametrize(
    "other",
    [
        {"output": "dense"}, {"batch_size": 128}, {"workers": 2}, {"cache": "cold"}, {"cache": "first"},
        {"order": "stream"}, {"processes": 2}, {"consumer_ms": 5.0}, {"block_size": 64}, {"fetch_factor": 8},
    ],
    ids=str,
)  # fmt: skip
def test_rows_under_other_conditions_do_not_judge(tmp_path: Path, other: dict) -> None:
    both(tmp_path, [2000] * 3, **other)
    assert judge.judge(RATIO, tmp_path, {}).verdict == "not measured"
    assert judge.judge(RATIO, both(tmp_path, [1000] * 3), {}).measured == 10.0


def test_rows_of_this_machines_disk_do_not_judge_a_claim_on_another(tmp_path: Path) -> None:
    both(tmp_path, [1000] * 3)
    on_hdd = replace(RATIO, under=RATIO.under | {"disk": "hdd"})
    assert judge.judge(on_hdd, tmp_path, {}).verdict == "not measured"


def test_a_side_that_could_not_be_measured_says_why(tmp_path: Path) -> None:
    both(tmp_path, [1000] * 3, workers=1)
    failed = replace(row("native", 0, 1), status="failed", reason="it needs more memory", rows=None, fetches=None)
    jsonl.append(tmp_path / "g.jsonl", failed)
    verdict = judge.judge(RATIO, tmp_path, {})
    assert (verdict.verdict, verdict.because) == ("not measured", "native was tried here: it needs more memory")
    assert judge.judge(RATIO, both(tmp_path, [1000] * 3), {}).verdict == "reproduced"


def test_rows_with_fewer_than_five_fetches_do_not_judge(tmp_path: Path) -> None:
    assert judge.judge(RATIO, both(tmp_path, [2000] * 3, fetches=4.9), {}).verdict == "not measured"
    assert judge.judge(RATIO, both(tmp_path, [1000] * 3, fetches=5.0), {}).measured == 10.0


@pytest.mark.parametrize("name", ["git_commit", "code"])
def test_only_rows_of_the_newest_code_judge(tmp_path: Path, name: str) -> None:
    both(tmp_path, [2000] * 5, facts={"utc": "2026-02", name: "b", "git_dirty": False})
    both(tmp_path, [1000] * 3, facts={"utc": "2026-03", name: "c", "git_dirty": False})
    both(tmp_path, [3000] * 4, facts={"utc": "2026-01", name: "a", "git_dirty": False})
    judgement = judge.judge(RATIO, tmp_path, {})
    assert (judgement.measured, judgement.repeats) == (10.0, 3)


def test_the_same_code_judges_whatever_commit_holds_it(tmp_path: Path) -> None:
    for repeat, commit in enumerate("xyz"):
        for loader, rate in (("native", 1000), ("annloader", 100)):
            facts = {"utc": f"2026-0{repeat + 1}", "code": "same", "git_commit": commit}
            jsonl.append(tmp_path / "g.jsonl", row(loader, repeat, rate, facts=facts))
    assert judge.judge(RATIO, tmp_path, {}).repeats == 3


def test_rows_of_uncommitted_code_do_not_judge(tmp_path: Path) -> None:
    both(tmp_path, [2000] * 3, facts={"utc": "2026-02", "git_commit": "b", "git_dirty": True})
    assert judge.judge(RATIO, tmp_path, {}).verdict == "not measured"


def test_a_repeat_that_was_measured_again_counts_once_and_its_last_row_counts(tmp_path: Path) -> None:
    both(tmp_path, [2000] * 3)
    judgement = judge.judge(RATIO, both(tmp_path, [1000] * 3), {})
    assert (judgement.measured, judgement.repeats) == (10.0, 3)


ENTROPY = Claim(
    **QUOTED, kind="entropy", published=1.0, unit="bits", within=0.1, grids=["g", "h"],
    ours={"loader": "scdataset", "batch_size": 4, "workers": 0, "block_size": 2, "fetch_factor": 2},
)  # fmt: skip
PLATES = {"print": np.array([0, 0, 1, 1], np.int32)}


def recorded(folder: Path, minibatches: list[list[int]], **changed: Any) -> Path:
    """A recorded order of fetches of two minibatches of four cells each."""
    settings = {"block_size": 2, "fetch_factor": 2, "batch_size": 4} | changed
    measured = row("scdataset", 0, 8, facts={"dataset_fingerprint": "print"}, **settings)
    jsonl.append(folder / "g.jsonl", measured)
    path = orders.path(folder, measured.condition, "print")
    orders.save(path, [np.array(rows) for rows in minibatches], fetch_rows=8)
    return folder


def test_an_entropy_is_that_of_the_recorded_order_and_the_law_has_its_own_place(tmp_path: Path) -> None:
    judgement = judge.judge(ENTROPY, recorded(tmp_path, [[0, 1, 2, 3]] * 10), PLATES)
    assert (judgement.verdict, judgement.measured, judgement.error, judgement.repeats) == ("reproduced", 1.0, 0.0, 5)
    assert judgement.law == pytest.approx(judge.computed("exact", batch_size=4, block_size=2, fetch_factor=2))
    assert judgement.law != judgement.measured
    one_plate = judge.judge(ENTROPY, recorded(tmp_path, [[0, 1, 0, 1]] * 10), PLATES)
    assert (one_plate.verdict, one_plate.measured) == ("differs", 0.0)


@pytest.mark.parametrize(
    "changed", [{"block_size": 4}, {"fetch_factor": 4}, {"workers": 2}, {"batch_size": 8}], ids=str
)
def test_orders_under_other_settings_do_not_judge_an_entropy(tmp_path: Path, changed: dict) -> None:
    judgement = judge.judge(ENTROPY, recorded(tmp_path, [[0, 1, 2, 3]] * 20, **changed), PLATES)
    assert judgement.verdict == "not measured"
    assert judgement.because == "GRID=h LOADERS=scdataset make bench"
    assert np.isnan(judgement.measured)
    assert judgement.law > 0


def test_the_output_and_the_page_cache_do_not_matter_to_an_order(tmp_path: Path) -> None:
    folder = recorded(tmp_path, [[0, 1, 2, 3]] * 10, output="dense", cache="first")
    assert judge.judge(ENTROPY, folder, PLATES).verdict == "reproduced"


def test_the_longest_order_judges(tmp_path: Path) -> None:
    recorded(tmp_path, [[0, 1, 0, 1]] * 10)
    recorded(tmp_path, [[0, 1, 2, 3]] * 12, seed=1)
    recorded(tmp_path, [[0, 1, 0, 1]] * 8, seed=2)
    judgement = judge.judge(ENTROPY, tmp_path, PLATES)
    assert (judgement.measured, judgement.repeats) == (1.0, 6)


def test_an_order_of_fewer_than_five_fetches_gives_no_verdict(tmp_path: Path) -> None:
    judgement = judge.judge(ENTROPY, recorded(tmp_path, [[0, 1, 2, 3]] * 9), PLATES)
    assert (judgement.verdict, judgement.repeats) == ("not measured", 4)
    assert "4 of 5 whole fetches" in judgement.because


def test_an_order_that_leaves_the_entropy_uncertain_gives_no_verdict(tmp_path: Path) -> None:
    """Fetches of 1 and of 0 bits by turns: their mean is 0.5, and its standard error 0.17."""
    fetches = [[[0, 1, 2, 3]] * 2, [[0, 1, 0, 1]] * 2] * 5
    claim = replace(ENTROPY, published=0.5)
    judgement = judge.judge(claim, recorded(tmp_path, [rows for fetch in fetches for rows in fetch]), PLATES)
    assert judgement.error == pytest.approx(0.5 * np.sqrt(10 / 9) / np.sqrt(10))
    assert judgement.verdict == "not measured"
    assert judge.judge(replace(claim, within=0.4), tmp_path, PLATES).verdict == "reproduced"


def test_minibatches_of_several_workers_are_grouped_by_a_fetch_of_each(tmp_path: Path) -> None:
    """Two workers deliver by turns, one fetches of 1 bit and one of 0: the fetches of both together are alike."""
    claim = replace(ENTROPY, published=0.5, ours=ENTROPY.ours | {"workers": 2})
    folder = recorded(tmp_path, [[0, 1, 2, 3], [0, 1, 0, 1]] * 10, workers=2)
    judgement = judge.judge(claim, folder, PLATES)
    assert (judgement.verdict, judgement.measured, judgement.error, judgement.repeats) == ("reproduced", 0.5, 0.0, 5)


def test_an_order_of_a_data_set_that_is_not_at_hand_gives_no_verdict(tmp_path: Path) -> None:
    assert judge.judge(ENTROPY, recorded(tmp_path, [[0, 1, 2, 3]] * 10), {}).verdict == "not measured"


def test_a_law_is_computed_and_never_reproduced() -> None:
    law = {"formula": "quotient", "product": [100.0, 3], "over": [20.0]}
    judgement = judge.judge(Claim(**QUOTED, kind="law", published=15.0, law=law), Path(), {})
    assert (judgement.verdict, judgement.law) == ("computed", 15.0)
    assert np.isnan(judgement.measured)


def test_the_laws_of_entropy() -> None:
    near_random = judge.computed("exact", batch_size=64, block_size=16, fetch_factor=256)
    assert near_random == pytest.approx(3.613, abs=0.02)
    lower, upper = (judge.computed(name, batch_size=64, block_size=4) for name in ("lower", "upper"))
    assert lower == pytest.approx(3.184, abs=1e-3)
    assert upper == pytest.approx(3.917, abs=1e-3)


def trained(folder: Path, arm: str, scores: list[float], **facts: object) -> None:
    for seed, f1 in enumerate(scores):
        run = training.Run(
            dataset="tahoe-mini", arm=arm, seed=seed, genes=5, batch_size=64, fetch_factor=256, learning_rate=1e-3,
            minibatches=3, seconds=1.0, scores={"linear drug": {"plate": {"macro_f1": f1, "accuracy": f1}}},
            provenance=facts,
        )  # fmt: skip
        jsonl.append(folder / training.FILE, run)


PATHS = Claim(
    **QUOTED, kind="shape", unit="times", grid="g",
    under={"loader": "native", "output": "csr", "batch_size": 64, "workers": 0, "cache": "first", "ttfb_ms": 30},
    shape={"product": [{"producers": 4}], "over": [{"producers": 1}], "least": 3.2, "most": 5.0},
)  # fmt: skip


def fleet(folder: Path, rates: dict[int, list[float]], **changed: Any) -> Path:
    """Rows of a fleet from a bucket: cells/s of each repeat, by the number of producers."""
    for producers, of_repeats in rates.items():
        for repeat, rate in enumerate(of_repeats):
            settings = {"dataset": "tahoe-chunks", "cache": "first", "ttfb_ms": 30} | changed
            knobs = (("block_size", 16), ("producers", producers))
            measurement = Measurement(
                condition=Condition(loader="native", knobs=knobs, **settings), timing=Timing(), repeat=repeat,
                status="ok", rows=rate, seconds=1.0, fetches=9.0, provenance={},
            )  # fmt: skip
            jsonl.append(folder / "g.jsonl", measurement)
    return folder


@pytest.mark.parametrize(
    ("four", "verdict"),
    [
        ([400, 390, 410], "in shape"),
        ([240, 250, 230], "not in shape"),
        ([900, 800, 850], "not in shape"),
        ([400, 390, 310], "not measured"),
        ([400, 390], "not measured"),
    ],
    ids=str,
)
def test_a_shape_holds_if_every_repeat_is_between_its_bounds(tmp_path: Path, four: list[float], verdict: str) -> None:
    judgement = judge.judge(PATHS, fleet(tmp_path, {1: [100] * 3, 4: four}), {})
    assert judgement.verdict == verdict
    assert judgement.measured == pytest.approx(np.median(four) / 100)
    assert (judgement.because != "") == (verdict == "not measured")


def test_rows_of_another_link_do_not_judge_a_shape(tmp_path: Path) -> None:
    fleet(tmp_path, {1: [100] * 3, 4: [400] * 3}, connection_mbps=1)
    judgement = judge.judge(PATHS, tmp_path, {})
    assert (judgement.verdict, judgement.repeats) == ("not measured", 0)
    assert judgement.because == "GRID=g LOADERS=native REPEAT=3 make bench"


def test_a_shape_may_compare_what_two_sides_lose(tmp_path: Path) -> None:
    """Of 4 producers a longer time to the first byte takes half of the rate, and of one a tenth."""
    fleet(tmp_path, {1: [100] * 3, 4: [400] * 3}, ttfb_ms=10)
    fleet(tmp_path, {1: [90] * 3, 4: [200] * 3}, ttfb_ms=100)
    under = {name: value for name, value in PATHS.under.items() if name != "ttfb_ms"}
    sides = {(n, ms): {"producers": n, "ttfb_ms": ms} for n in (1, 4) for ms in (10, 100)}
    shape = {"product": [sides[4, 100], sides[1, 10]], "over": [sides[4, 10], sides[1, 100]], "most": 1.0}
    judgement = judge.judge(replace(PATHS, under=under, shape=shape), tmp_path, {})
    assert (judgement.verdict, judgement.measured) == ("in shape", pytest.approx(0.5 / 0.9))


SCORE = Claim(
    **QUOTED, kind="measured", by="score", published=0.5, within=0.01, head="linear drug", test="plate", floor=0.02,
    ours="stream",
)  # fmt: skip


def test_scores_are_compared_seed_by_seed(tmp_path: Path) -> None:
    assert judge.judge(SCORE, tmp_path, {}).because == "make train"
    trained(tmp_path, "stream", [0.1, 0.2, 0.3])
    trained(tmp_path, "random", [0.2, 0.4, 0.6])
    alone = judge.judge(SCORE, tmp_path, {})
    assert (alone.verdict, alone.measured) == ("differs", 0.2)
    judgement = judge.judge(replace(SCORE, theirs="random"), tmp_path, {})
    assert (judgement.verdict, judgement.measured, judgement.repeats) == ("reproduced", pytest.approx(0.5), 3)


def test_models_that_learned_nothing_are_not_compared(tmp_path: Path) -> None:
    claim = replace(SCORE, published=1.0, theirs="random")
    trained(tmp_path, "stream", [0.01] * 3)
    trained(tmp_path, "random", [0.01] * 3)
    judgement = judge.judge(claim, tmp_path, {})
    assert judgement.verdict == "not measured"
    assert "constant prediction" in judgement.because
    assert judge.judge(replace(claim, floor=0.009), tmp_path, {}).verdict == "reproduced"


def test_scores_are_of_one_commit(tmp_path: Path) -> None:
    trained(tmp_path, "stream", [0.5] * 3, utc="2026-01", git_commit="a")
    trained(tmp_path, "stream", [0.1] * 2, utc="2026-02", git_commit="b")
    judgement = judge.judge(SCORE, tmp_path, {})
    assert (judgement.verdict, judgement.measured, judgement.repeats) == ("not measured", 0.1, 2)


def test_costs_are_compared_repeat_by_repeat(tmp_path: Path) -> None:
    claim = Claim(
        **QUOTED, kind="measured", by="cost", published=0.3, tolerance=0.1, operation="fitting", ours=["heads", 4096],
        theirs=["heads", 256],
    )  # fmt: skip
    assert judge.judge(claim, tmp_path, {}).because == "python -m harness cost-curves"
    for size, costs in ((256, [10.0, 20.0, 30.0]), (4096, [3.0, 6.0, 9.0])):
        record = cost.Cost(dataset="tahoe-mini", law="fitting", method="heads", size=size, us_per_cell=costs)
        jsonl.append(tmp_path / cost.FILE, record)
    judgement = judge.judge(claim, tmp_path, {})
    assert (judgement.verdict, judgement.measured, judgement.repeats) == ("reproduced", pytest.approx(0.3), 3)


def test_without_records_nothing_is_judged(tmp_path: Path) -> None:
    frame = table.table(tmp_path, {})
    assert len(frame) == len(LEDGER)
    expected = {
        "measured": "not measured", "entropy": "not measured", "shape": "not measured", "law": "computed",
        "untestable here": "untestable here",
    }  # fmt: skip
    assert (frame["verdict"] == frame["kind"].map(expected)).all()
    assert (frame["because"] != "").equals(frame["verdict"].isin(["not measured", "untestable here"]))
    assert frame["measured"].isna().all()
    assert frame["law"].notna().equals(frame["kind"].isin(["law", "entropy"]))


def test_the_page_states_the_rule_and_shows_every_claim_with_its_source(tmp_path: Path) -> None:
    table.write(both(tmp_path, [1000] * 3), [])
    page = (tmp_path / "reproduction.md").read_text()
    assert page.index("at least 3 repeats") < page.index("| claim | kind |")
    lines = [line for line in page.splitlines() if line.startswith("| ") and not line.startswith(("| claim", "| ---"))]
    assert len(lines) == len(LEDGER)
    assert {line.count("|") for line in lines} == {8}
    for claim in LEDGER:
        assert f"| {claim.says}." in page
        assert (claim.quote.replace("|", "&#124;") or claim.commit) in page


def test_the_report_reads_what_the_table_wrote(tmp_path: Path) -> None:
    table.write(tmp_path, [])
    rows = {row["id"]: row for row in report._claims(tmp_path)}
    assert len(rows) == len(LEDGER)
    law = rows["v1-epoch-58-days"]
    assert (law["published"], law["unit"], law["law"], law["measured"]) == ("58", "days", "58.2", "–")
    assert law["because"] == ""
    assert rows["annbatch-amortized"]["published"] == "–"


@pytest.mark.parametrize(("repeats", "name"), [(5, "range"), (6, "95 %")])
def test_few_repeats_have_a_range_and_more_an_interval(tmp_path: Path, repeats: int, name: str) -> None:
    judgement = judge.judge(RATIO, both(tmp_path, [1000 + i for i in range(repeats)]), {})
    assert f" ({name} 10" in table.measured(judgement)


def test_the_flops_of_a_step_are_counted_with_a_head_for_genes_and_without() -> None:
    step = {"formula": "step", "size": "51m", "cells": 2, "length": 10, "vocabulary": 1_000, "product": [], "over": []}
    without = judge.computed(**step, genes=0.0)
    assert without == SIZES["51m"].flops_of_rows(2, 10)
    assert judge.computed(**step, genes=0.5) - without == 6 * 512 * 1_000 * 10
