"""The store and the batches of `cellarium` with several shards; in the contract tests the tiny set fits into one."""

from pathlib import Path

import anndata as ad
import numpy as np
import pytest

from harness.condition import Condition
from harness.data.dataset import Dataset
from loaders import cellarium
from tests import tiny
from tests.conftest import skip_unless_available


@pytest.mark.parametrize("shard_rows", [100, 300])  # the last shard has 109 and 409 cells
@pytest.mark.parametrize("order", ["random", "stream"])
def test_shards_cross_files_and_batches_cross_shards(
    tiny_set: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shard_rows: int, order: str
) -> None:
    skip_unless_available("cellarium")
    monkeypatch.setattr(cellarium, "SHARD_ROWS", shard_rows)
    progress = []
    cellarium.Cellarium.prepare(tiny_set, tmp_path, progress.append)
    assert len(progress) == len(list(tmp_path.iterdir())) == round(tiny.N / shard_rows)
    assert progress[-1] == tiny.N
    condition = Condition(dataset="tiny", loader="cellarium", batch_size=16, order=order)
    loader = cellarium.Cellarium.open(tiny_set, tmp_path, condition, rows=True)
    batches = list(loader.epoch(0))
    loader.close()
    truth, rows = tiny.truth(), np.concatenate([batch.rows for batch in batches])
    assert all(np.array_equal(batch.x.toarray(), truth[batch.rows]) for batch in batches)
    assert sorted(rows) == list(range(tiny.N))
    shards = np.minimum(np.arange(tiny.N) // shard_rows, len(progress) - 1)
    stored = np.concatenate([ad.read_h5ad(file).obs["row"] for file in sorted(tmp_path.iterdir())])
    if order == "stream":
        assert rows.tolist() == stored.tolist()
    else:  # shards follow each other; cells are mixed only within a shard
        shard_of = np.empty(tiny.N, int)
        shard_of[stored] = shards
        assert np.count_nonzero(np.diff(shard_of[rows])) == len(progress) - 1
    assert (np.diff(rows) != 1).mean() > 0.9
    assert all(stored[shards == shard].std() > tiny.N / 5 for shard in set(shards))  # from all over the set
