"""zarr groups and csad archives in object storage give the same rows as on a disk."""

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from loadstone import open_csad, open_zarr
from tests import tiny
from tests.conftest import Serve, skip_unless_available
from tests.loadstone.zarr_forms import ZARR, write


def rows_of(matrix) -> np.ndarray:
    with closing(matrix):
        order = np.random.default_rng(0).permutation(len(matrix))
        return matrix[order].toarray()[np.argsort(order)]


@pytest.mark.filterwarnings("ignore:.* is read through zarr", "ignore:.* is decoded chunk by chunk")
@pytest.mark.parametrize("form", ZARR, ids=str)
def test_zarr_groups_give_the_same_rows(serve: Serve, tmp_path: Path, form: dict) -> None:
    paths = [write(tmp_path / "set" / f"{name}.zarr", form) for name in "ab"]
    server = serve(tmp_path / "set", ttfb_ms=1)
    for matrix in (open_zarr([f"s3://data/{path.name}" for path in paths], threads=2), open_zarr(paths, threads=2)):
        assert matrix.n_genes == tiny.GENES
        np.testing.assert_array_equal(rows_of(matrix), np.concatenate([tiny.truth(), tiny.truth()]))
    assert server.counters()["requests"]["GET"] > 10


def test_a_missing_group_is_one_error(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    serve(tmp_path / "set")
    with pytest.raises(OSError, match=r"s3://data/none\.zarr does not exist"):
        open_zarr("s3://data/none.zarr")


def test_csad_archives_give_the_same_cells(serve: Serve, tmp_path: Path, tiny_set) -> None:
    skip_unless_available("native_cellstream")
    from loaders.cellstream import STORE, CellStream

    (tmp_path / "set").mkdir()
    CellStream.prepare(tiny_set, tmp_path / "set", lambda cells: None)
    server = serve(tmp_path / "set", ttfb_ms=1)
    url = server.url(tmp_path / "set" / STORE)
    np.testing.assert_array_equal(rows_of(open_csad(url, threads=2)), tiny.truth())
    assert server.counters()["bytes"] > 0
