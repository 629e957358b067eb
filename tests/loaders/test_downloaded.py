"""`native_downloaded` keeps the contract over a bucket, and leaves no file behind."""

import os
import subprocess
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from harness.bucket.process import BUCKET
from harness.condition import ORDERS, OUTPUTS
from harness.data.dataset import Dataset
from harness.run import stores
from loaders import downloaded, scratch
from loaders.downloaded import NativeDownloaded, download
from tests.conftest import Serve, skip_unless_available
from tests.loaders.test_contract import condition_of, outcome

NAME = "native_downloaded"


@pytest.fixture
def served(tiny_set: Dataset, serve: Serve) -> Dataset:
    skip_unless_available(NAME)
    server = serve(tiny_set.paths[0].parent)
    return replace(tiny_set, bucket=f"s3://{BUCKET}", served=server.folder)


@pytest.mark.parametrize(("order", "output"), [*product(ORDERS, OUTPUTS)])
def test_every_claim_holds_over_a_bucket(
    served: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: str, output: str
) -> None:
    monkeypatch.setattr(stores, "STORES", tmp_path / "stores")
    claims = outcome(served, condition_of(NAME, order=order, output=output))
    assert all(claims.values()), claims
    assert [path for path in (tmp_path / "stores").rglob("*") if path.is_file()] == []


def test_a_download_is_exact_whatever_the_ranges(
    served: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloaded, "RANGE_BYTES", 1_000)
    paths = download(served.urls, tmp_path)
    assert [path.read_bytes() for path in paths] == [path.read_bytes() for path in served.paths]


def test_the_copy_is_there_while_the_loader_is_open(served: Dataset, tmp_path: Path) -> None:
    loader = NativeDownloaded.open(served, tmp_path / "h5ad-1", condition_of(NAME), rows=True)
    (copy,) = tmp_path.glob("h5ad-1.copy-*")
    assert len(list(copy.iterdir())) == len(served.paths)
    assert np.sort(np.concatenate([batch.rows for batch in loader.epoch(0)])).tolist() == list(range(served.n_cells))
    loader.close()
    assert list(tmp_path.glob("h5ad-1.copy-*")) == []


def test_what_a_killed_process_left_is_removed_and_what_another_uses_is_not(tmp_path: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    left, used = (tmp_path / f"h5ad-1.copy-{pid}-abc" for pid in (ended.pid, os.getpid()))
    for folder in (left, used):
        folder.mkdir()
        (folder / "000000.h5ad").write_bytes(b"x")
    with scratch.folder(tmp_path / "h5ad-1") as new:
        assert not left.exists()
        assert used.exists()
        assert Path(new).parent == tmp_path
