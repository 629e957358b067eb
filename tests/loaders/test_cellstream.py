"""The store of `cellstream` if X holds fractions, for which its integer codec is no use; the tiny set holds counts."""

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from harness.condition import Condition
from harness.data import catalogue
from harness.data.dataset import Dataset
from loaders.cellstream import CellStream
from tests import tiny
from tests.conftest import skip_unless_available


@pytest.fixture(scope="module")
def fractions(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    folder = tmp_path_factory.mktemp("fractions") / "set"
    return catalogue.load(str(tiny.write(folder, lambda x: sp.csr_matrix(x / 4))))


@pytest.mark.parametrize(("name", "codec"), [("tiny_set", "pfordelta"), ("fractions", "zstd")])
def test_values_are_exact_in_either_codec(
    request: pytest.FixtureRequest, tmp_path: Path, name: str, codec: str
) -> None:
    skip_unless_available("cellstream")
    dataset, progress = request.getfixturevalue(name), []
    CellStream.prepare(dataset, tmp_path, progress.append)
    assert progress == sorted(progress)
    assert progress[-1] == tiny.N
    loader = CellStream.open(dataset, tmp_path, Condition(dataset="tiny", loader="cellstream"), rows=True)
    assert loader.store.manifest["codec"] == codec
    truth = tiny.truth() / (4 if codec == "zstd" else 1)
    for batch in loader.epoch(0):
        np.testing.assert_array_equal(batch.x.toarray(), truth[batch.rows])
    loader.close()
