"""The verdict of a claim follows from its numbers; too few repeats give no verdict."""

from pathlib import Path

import numpy as np
import pytest

from analysis.tables import claims
from analysis.tables.ratios import fits
from harness.condition import Condition, Timing
from harness.grids import expand
from harness.records import cost, jsonl, training
from harness.records.measurement import Measurement

RATIO = {
    "published": 10.0, "unit": "times", "kind": "ratio", "grid": "g", "holds": "about", "tolerance": 0.5,
    "ours": {"loader": "native"}, "theirs": {"loader": "annloader"},
}  # fmt: skip


def measured(folder: Path, ours: list[int], theirs: list[int], dataset: str = "tahoe-mini") -> Path:
    for loader, rates in (("native", ours), ("annloader", theirs)):
        for repeat, rows in enumerate(rates):
            m = Measurement(
                condition=Condition(dataset=dataset, loader=loader), timing=Timing(), repeat=repeat, status="ok",
                rows=rows, seconds=1.0, fetches=9.0,
            )  # fmt: skip
            jsonl.append(folder / "g.jsonl", m)
    return folder


@pytest.mark.parametrize(
    ("changed", "verdict"),
    [
        ({}, "reproduced"),
        ({"published": 19.0}, "reproduced"),
        ({"published": 21.0}, "differs"),
        ({"published": 6.0}, "differs"),
        ({"published": 6.0, "holds": "least"}, "reproduced"),
        ({"published": 10.5, "holds": "least", "tolerance": 0.0}, "differs"),
    ],
)
def test_a_ratio_of_three_repeats_is_judged(tmp_path: Path, changed: dict, verdict: str) -> None:
    folder = measured(tmp_path, [900, 1000, 1100], [100, 100, 100])
    judgement = claims.judge(RATIO | changed, folder)
    assert (judgement.verdict, judgement.measured, judgement.repeats) == (verdict, 10.0, 3)
    assert judgement.low <= 10 <= judgement.high


def test_the_data_set_of_the_paper_comes_before_its_stand_in_and_no_other_counts(tmp_path: Path) -> None:
    measured(tmp_path, [9000] * 3, [100] * 3, "cells-1e6")
    assert claims.judge(RATIO, tmp_path).verdict == "not run"
    measured(tmp_path, [1000] * 3, [100] * 3)
    assert claims.judge(RATIO, tmp_path).measured == 10.0
    measured(tmp_path, [1100] * 3, [100] * 3, "tahoe")
    assert claims.judge(RATIO, tmp_path).measured == 11.0


def test_two_repeats_give_no_verdict(tmp_path: Path) -> None:
    judgement = claims.judge(RATIO, measured(tmp_path, [1000, 1000], [100, 100, 100]))
    assert (judgement.verdict, judgement.repeats) == ("not run", 2)
    assert "REPEAT=3" in judgement.because
    assert claims.judge(RATIO, tmp_path / "nowhere").verdict == "not run"


def test_every_claim_can_be_judged(tmp_path: Path) -> None:
    frame = claims.table(tmp_path)
    assert len(frame) >= 40
    assert frame["id"].is_unique
    assert set(frame["verdict"]) <= {"reproduced", "differs", "not run"}
    assert (frame["because"] != "").equals(frame["verdict"] == "not run")
    assert all(row.says in claims.markdown(frame) for row in frame.itertuples())


@pytest.mark.parametrize("claim", [c for c in claims.read() if c["kind"] == "ratio"], ids=lambda c: c["id"])
def test_both_sides_of_a_ratio_are_in_its_grid(claim: dict) -> None:
    conditions = expand(claim["grid"], "tahoe-mini").conditions
    for side in (claim["ours"], claim["theirs"]):
        assert any(fits(condition, side) for condition in conditions), side


def test_published_entropies_are_judged_by_the_law() -> None:
    laws = {c["id"]: claims.judge(c, Path()) for c in claims.read() if c["kind"] == "law"}
    assert laws["poster-entropy-16-256"].verdict == "reproduced"
    assert laws["poster-lower-bound"].verdict == "differs"
    assert not any(np.isnan(judgement.measured) for judgement in laws.values())


def trained(folder: Path, arm: str, scores: list[float]) -> None:
    for seed, f1 in enumerate(scores):
        run = training.Run(
            dataset="tahoe-mini", arm=arm, seed=seed, genes=5, batch_size=64, fetch_factor=256, learning_rate=1e-3,
            minibatches=3, seconds=1.0, scores={"linear drug": {"plate": {"macro_f1": f1, "accuracy": f1}}},
        )  # fmt: skip
        jsonl.append(folder / training.FILE, run)


def test_scores_are_compared_seed_by_seed(tmp_path: Path) -> None:
    claim = {
        "published": 0.5, "kind": "score", "head": "linear drug", "test": "plate", "ours": "stream", "holds": "about",
        "within": 0.01,
    }  # fmt: skip
    assert claims.judge(claim, tmp_path).because == "make train"
    trained(tmp_path, "stream", [0.1, 0.2, 0.3])
    trained(tmp_path, "random", [0.2, 0.4, 0.6])
    assert (claims.judge(claim, tmp_path).verdict, claims.judge(claim, tmp_path).measured) == ("differs", 0.2)
    judgement = claims.judge(claim | {"theirs": "random"}, tmp_path)
    assert (judgement.verdict, judgement.measured, judgement.repeats) == ("reproduced", pytest.approx(0.5), 3)


def test_costs_are_compared_repeat_by_repeat(tmp_path: Path) -> None:
    claim = {
        "published": 0.3, "kind": "cost", "law": "ranking", "ours": ["polars", 1024], "theirs": ["polars", 32],
        "holds": "about", "tolerance": 0.1,
    }  # fmt: skip
    assert claims.judge(claim, tmp_path).because == "python -m harness laws"
    for size, costs in ((32, [10.0, 20.0, 30.0]), (1024, [3.0, 6.0, 9.0])):
        record = cost.Cost(dataset="tahoe-mini", law="ranking", method="polars", size=size, us_per_cell=costs)
        jsonl.append(tmp_path / cost.FILE, record)
    judgement = claims.judge(claim, tmp_path)
    assert (judgement.verdict, judgement.measured, judgement.repeats) == ("reproduced", pytest.approx(0.3), 3)
