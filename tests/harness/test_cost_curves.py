"""The operations whose cost is measured compute the right result, and their costs are recorded and drawn."""

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from harness.commands.cost_curves import publish
from harness.data.dataset import Dataset
from harness.experiments import cost_curves
from harness.records import cost as records
from harness.records import jsonl
from harness.records.validate import problems
from tests.tiny import truth


def test_the_compiled_and_the_pandas_ranking_equal_argsort() -> None:
    rng = np.random.default_rng(0)
    x = sp.csr_matrix([np.where(rng.random(2_000) < 0.7, rng.permutation(2_000) + 1, 0) for _ in range(5)], dtype="f4")
    expected = np.concatenate(
        [row.indices[np.argsort(-row.data)][: cost_curves.RANKED] for row in (x[i] for i in range(5))]
    )
    assert cost_curves.rank_compiled(x).tolist() == expected.tolist()
    assert cost_curves.rank_pandas(x).tolist() == expected.tolist()


def test_the_polars_ranking_equals_the_compiled_one() -> None:
    pytest.importorskip("polars")
    x = sp.csr_matrix(truth()[10:20] + np.arange(211, dtype=np.float32) * (truth()[10:20] > 0))
    assert cost_curves.rank_polars(x).tolist() == cost_curves.rank_compiled(x).tolist()


def test_every_cost_is_measured_recorded_and_drawn(
    tiny_set: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cost_curves, "REPEATS", 2)
    monkeypatch.setattr(cost_curves, "LEAST_S", 0.0)
    sizes = {"ranking": (4, 8), "shuffling": (10,), "reading": (16,), "fitting": (8,)}
    monkeypatch.setattr(cost_curves, "SIZES", sizes)
    monkeypatch.setattr(cost_curves, "GENES", 100)
    measured = cost_curves.measure(tiny_set, lambda phase: None)
    assert {law for law, *_ in measured} >= {"ranking", "shuffling", "reading", "ladder"}
    assert all(len(costs) == 2 and min(costs) > 0 for costs in measured.values())
    facts = {"dataset_fingerprint": tiny_set.fingerprint, "utc": "2026-01-01T00:00:00+00:00", "machine": "m"}
    for (law, method, size), costs in measured.items():
        cost = records.Cost(
            dataset="tiny", law=law, method=method, size=size, us_per_cell=costs, provenance=facts
        )  # fmt: skip
        jsonl.append(tmp_path / records.FILE, cost)
    assert list(problems(tmp_path)) == []
    names = {path.name for path in publish(tiny_set, tmp_path)}
    assert names == {"tiny-laws.png", "tiny-laws.pdf", "tiny-laws.csv"}
