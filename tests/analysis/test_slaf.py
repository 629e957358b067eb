"""The scores of an order, and the tables and verdicts from records of SLAF's own experiments."""

from itertools import combinations, pairwise, product
from pathlib import Path

import numpy as np
import pytest

from analysis import results
from analysis.diversity import distance
from analysis.tables import slaf as tables
from analysis.tables.claims import judge
from harness.records import jsonl, slaf
from harness.records.slaf import PHASES, Mixture, Operation, Phase
from tests.analysis.test_claims import LEDGER

MIXED = Mixture(
    dataset="tahoe-mini", fragment_cells=5_000, n_scanners=16, repeat=0, batch_size=32, cells=2_999, seconds=2.0,
    within_cells=910.0, across_cells=901.0, bits={"plate": 2.0}, random_bits={"plate": 4.0},
)  # fmt: skip
SEQUENTIAL = {"n_scanners": None, "seconds": 1.0, "within_cells": 10.0, "across_cells": 10.0, "bits": {"plate": 0.1}}


def batches(order: np.ndarray) -> list[np.ndarray]:
    return np.split(order, len(order) // 32)


def test_distances_are_those_of_all_pairs() -> None:
    parts = [np.array([5, 1, 9]), np.array([2, 2]), np.array([7])]
    pairs = [[abs(a - b) for a, b in combinations(part.tolist(), 2)] for part in parts[:2]]
    assert distance.within(parts) == pytest.approx(np.mean([np.mean(of) for of in pairs]))
    next_to = [[abs(a - b) for a, b in product(*both)] for both in pairwise(parts)]
    assert distance.across(parts) == pytest.approx(np.mean([np.mean(of) for of in next_to]))
    assert np.isnan(distance.within([np.array([3])]))
    assert np.isnan(distance.across([np.array([3])]))


def test_random_cells_score_one_and_those_in_order_nothing() -> None:
    n = 32_000
    in_order, at_random = batches(np.arange(n)), batches(np.random.default_rng(0).permutation(n))
    for mean in (distance.within, distance.across):
        sequential = mean(in_order)
        assert distance.score(mean(at_random), sequential, n) == pytest.approx(1, abs=0.02)
        assert distance.score(sequential, sequential, n) == 0
    assert distance.within(in_order) == pytest.approx(11)  # (32 + 1) / 3


def test_long_runs_from_few_places_score_nearly_one() -> None:
    """The authors' score of 16 runs: a pair is of one run in a sixteenth of the cases."""
    runs = np.arange(16_000).reshape(16, 1_000).T  # cell i of each of 16 runs
    value = distance.score(distance.within(batches(runs.ravel())), 11, 16_000)
    assert value == pytest.approx(1, abs=0.05)


def record(folder: Path) -> None:
    for repeat in range(3):
        for phase, rate in enumerate((1, 20, 1_000, 2_000, 6_400)):
            run = Phase(
                dataset="tahoe-mini", phase=phase, repeat=repeat, cells=rate * (1 + repeat), seconds=1.0 + repeat
            )
            jsonl.append(folder / slaf.PHASES_FILE, run)
        for changed in ({}, SEQUENTIAL):
            jsonl.append(folder / slaf.MIXTURE_FILE, Mixture(**vars(MIXED) | changed | {"repeat": repeat}))
    for size, us in ((32, [60.0] * 3), (1_024, [20.0, 18.0, 19.0])):
        cost = Operation(dataset="tahoe-mini", operation="ranking", method="polars", size=size, us_per_unit=us)
        jsonl.append(folder / slaf.OPERATIONS_FILE, cost)


def test_tables_have_ratios_beside_the_published(tmp_path: Path) -> None:
    assert tables.of_folder(tmp_path, "tahoe-mini") == ""
    record(tmp_path)
    text = tables.of_folder(tmp_path, "tahoe-mini")
    assert f"| 1: {PHASES[1]} | 20.0 (20.0 to 20.0) | 20.0 (20.0 to 20.0) | 4,582 | 1.04 |" in text
    assert "| ranking, polars | 1,024 | 19.0 (18.0 to 20.0) | 0.32 (0.30 to 0.33) | 19.1 | 0.31 |" in text
    line = next(line for line in text.splitlines() if line.startswith("| 5,000 | 16 |"))
    assert "| 0.50 (0.50 to 0.50) | 0.91 (0.91 to 0.91) | 0.90 (0.90 to 0.90) | 0.50 (0.50 to 0.50) |" in line
    assert tables.of_folder(tmp_path, "another") == ""


@pytest.mark.parametrize(
    ("name", "measured", "verdict"),
    [
        ("slaf-ladder-1-over-0", 20, "differs"),
        ("slaf-ladder-3-over-2", 2, "reproduced"),
        ("slaf-ladder-4-over-0", 6_400, "differs"),
        ("slaf-ranking-measured", 19 / 60, "reproduced"),
        ("slaf-ranking-3x-measured", 60 / 19, "reproduced"),
        ("slaf-mixture-entropy", 90.5, "reproduced"),
        ("slaf-mixture-plates", 50, "differs"),
        ("slaf-mixture-throughput", 50, "differs"),
    ],
)
def test_the_claims_are_judged(name: str, measured: float, verdict: str, tmp_path: Path) -> None:
    (claim,) = (claim for claim in LEDGER if claim.id == name)
    without = judge.judge(claim, tmp_path, {})
    assert (without.verdict, without.because.split()[0]) == ("not measured", "python")
    record(tmp_path)
    judgement = judge.judge(claim, tmp_path, {})
    assert (judgement.verdict, judgement.repeats) == (verdict, 3)
    assert judgement.measured == pytest.approx(measured, rel=0.01)


def test_what_has_no_records_is_not_measured(tmp_path: Path) -> None:
    record(tmp_path)
    (claim,) = (claim for claim in LEDGER if claim.id == "slaf-shuffling-measured")
    assert judge.judge(claim, tmp_path, {}).verdict == "not measured"


def test_the_page_has_a_section_once_there_are_records(tmp_path: Path) -> None:
    machine = next(iter(results.MACHINES))
    (tmp_path / machine).mkdir()
    assert results._slaf(tmp_path, "tahoe-mini") == {}
    record(tmp_path / machine)
    assert list(results._slaf(tmp_path, "tahoe-mini")) == [machine]
