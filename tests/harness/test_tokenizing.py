"""What tokenising costs is measured on the same cells by all ways."""

import pytest

from harness.data.dataset import Dataset
from harness.experiments import tokenizing
from tests.conftest import skip_unless_available


def test_all_ways_handle_the_same_cells(tiny_set: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    skip_unless_available("slaf")
    monkeypatch.setattr(tokenizing, "REPEATS", 1)
    cells = [batch.x for batch in tokenizing.opened(tiny_set, None)]
    compared = tokenizing.ways(tiny_set, cells)
    assert all(us_per_cell > 0 for us_per_cell, _ in tokenizing.measured(compared, len(cells)).values())
    tokens = {name: way() for name, way in compared.items()}
    assert tokens.pop("reading") == 0
    n_cells, n_counts = len(cells) * tokenizing.BATCH, sum(x.nnz for x in cells)
    empty = sum(int((x.getnnz(axis=1) == 0).sum()) for x in cells)
    assert {name: n for name, n in tokens.items() if "slafdb" not in name} == dict.fromkeys(
        [f"{form}: {what}" for form in ("geneformer", "scgpt") for what in ("encoding", "reading and encoding")],
        n_counts + 2 * n_cells,
    )
    assert {n for name, n in tokens.items() if "slafdb" in name} == {n_counts + 2 * (n_cells - empty)}
