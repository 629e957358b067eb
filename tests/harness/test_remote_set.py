"""A data set of which there are objects alone: found by its URL, inspected, measured; and what cannot be is said."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from harness.data import catalogue
from harness.data.dataset import Dataset
from harness.errors import UserError
from harness.records import jsonl
from tests import tiny

Harness = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def url(serve: Callable, tiny_folder: Path) -> str:
    """The URL of the tiny data set in a bucket."""
    serve(tiny_folder.parent)
    return f"s3://data/{tiny_folder.name}"


def test_it_is_the_data_set_of_the_files(url: str, tiny_set: Dataset) -> None:
    for spec in (url, f"{url}/", f"{url}/part*.h5ad"):
        remote = catalogue.load(spec)
        for name in ("name", "lengths", "n_genes", "nnz", "x_format", "label_names"):
            assert getattr(remote, name) == getattr(tiny_set, name)
        for label in remote.label_names:
            np.testing.assert_array_equal(remote.labels(label), tiny_set.labels(label))
        assert Dataset.from_dict(remote.to_dict()) == remote


def test_one_object(url: str) -> None:
    assert catalogue.load(f"{url}/part3.h5ad").lengths == tiny.LENGTHS[3:]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("s3://data/none/", "no object"),
        ("s3://data/tiny/none.h5ad", "does not exist"),
        ("ftp://data/a.h5ad", "ftp://"),
    ],
)
def test_what_is_not_there_is_one_sentence(url: str, spec: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        catalogue.load(spec)


def test_it_is_measured(url: str, harness: Harness, tmp_path: Path) -> None:
    arguments = ("--grid", "smoke", "--loaders", "native,annloader", "--results", tmp_path / "results")
    done = harness("bench", "--dataset", url, *arguments)
    assert done.returncode == 0, done.stderr
    rows = jsonl.read(tmp_path / "results" / "smoke.jsonl")
    ours = [m for m in rows if (m.condition.loader, m.condition.output) == ("native", "csr")]
    assert {m.status for m in ours} == {"ok"}, [m.reason for m in ours]
    assert all("it reads files" in m.reason for m in rows if m.condition.loader == "annloader")
