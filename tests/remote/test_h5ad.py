"""h5ad files in object storage give the same minibatches as on a disk, whatever the server does to its answers."""

import os
import shutil
from contextlib import closing
from pathlib import Path

import anndata as ad
import h5py
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from loadstone import open_h5ad
from loadstone.reading.disk import Disk
from loadstone.remote import metadata, objects
from tests import tiny
from tests.conftest import Serve
from tests.loadstone.hdf5_forms import HDF5, rewrite
from tests.remote.same import assert_same_minibatches

ONLY_BY_HDF5 = [form for form in HDF5 if "scaleoffset" in form]


def urls_of(server, folder: Path) -> list[str]:
    return [server.url(path) for path in sorted(folder.iterdir())]


def rows_of(paths: list, **options: object) -> np.ndarray:
    with closing(open_h5ad(paths, threads=2, **options)) as matrix:
        return matrix[np.arange(len(matrix))].toarray()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tiny.write(tmp_path / "set")


@pytest.mark.parametrize("form", [form for form in HDF5 if form not in ONLY_BY_HDF5], ids=str)
def test_every_form_gives_the_same_rows(serve: Serve, folder: Path, form: dict) -> None:
    for path in folder.iterdir():
        rewrite(path, **form)
    urls = urls_of(serve(folder), folder)
    np.testing.assert_array_equal(rows_of(urls), tiny.truth())
    np.testing.assert_array_equal(rows_of(urls), tiny.truth())  # from the index


def test_minibatches_are_those_of_the_disk(serve: Serve, folder: Path) -> None:
    urls = urls_of(serve(folder, ttfb_ms=2), folder)
    for output in ("csr", "dense", "dense_uint16"):
        assert_same_minibatches(sorted(folder.iterdir()), urls, output)


def test_what_requests_cost_is_measured_over_all_connections(serve: Serve, folder: Path) -> None:
    with (
        closing(open_h5ad(urls_of(serve(folder), folder))) as remote,
        closing(open_h5ad(list(folder.iterdir()))) as local,
    ):
        assert remote.disk.connections == objects.CONNECTIONS
        assert local.disk.connections == 0


@pytest.mark.parametrize("fault", ["unavailable", "short", "cut", "reset"])
def test_faults_are_mended(serve: Serve, folder: Path, fault: str) -> None:
    server = serve(folder, faults={fault: 0.2})
    for _ in range(3):
        np.testing.assert_array_equal(rows_of(urls_of(server, folder)), tiny.truth())
    assert server.counters()["faults"][fault] > 5


def test_an_answer_that_never_comes_is_asked_for_again(serve: Serve, folder: Path) -> None:
    server = serve(folder, faults={"stalled": 0.1})
    rows = rows_of(urls_of(server, folder), storage={"timeout": "300ms"})
    np.testing.assert_array_equal(rows, tiny.truth())
    assert server.counters()["faults"]["stalled"] > 0


def test_an_error_names_the_object_the_range_and_the_chunk(
    serve: Serve, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve(folder)
    urls = urls_of(server, folder)
    with closing(open_h5ad(urls, threads=2)) as matrix:
        monkeypatch.setattr(objects, "PATIENCE_S", 0.3)
        shutil.move(folder / "part0.h5ad", folder / "away")
        os.mkfifo(folder / "part0.h5ad")
        with pytest.raises(
            OSError, match=r"part0.h5ad: /X/(data|indices), chunk 0: s3://data/part0.h5ad.*does not exist"
        ):
            matrix[np.arange(3)]


def test_a_server_that_is_overloaded_ends_in_one_error(
    serve: Serve, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    urls = urls_of(serve(folder), folder)
    rows_of(urls)
    monkeypatch.setattr(objects, "PATIENCE_S", 0.3)
    broken = urls_of(serve(folder, faults={"unavailable": 1.0}), folder)
    with pytest.raises(OSError, match=r"s3://data/part\d.h5ad cannot be read: .*503"):
        rows_of(broken)


def test_a_request_that_the_server_refuses_is_not_made_again(serve: Serve, folder: Path) -> None:
    server = serve(folder, faults={"refused": 1.0})
    with pytest.raises(OSError, match=r"s3://data/part\d.h5ad cannot be read: .*400"):
        rows_of(urls_of(server, folder))
    assert server.counters()["faults"]["refused"] <= len(tiny.LENGTHS)


def test_an_object_that_changes_is_an_error_not_a_mixture(serve: Serve, folder: Path) -> None:
    urls = urls_of(serve(folder), folder)
    with closing(open_h5ad(urls, threads=2)) as matrix:
        rewrite(folder / "part0.h5ad", chunks=(7,), compression="gzip")
        with pytest.raises(OSError, match=r"part0\.h5ad has changed since it was opened; open it again"):
            matrix[np.arange(3)]
    np.testing.assert_array_equal(rows_of(urls), tiny.truth())  # the index is of the old object, and is not used


def test_the_index_is_kept_and_saves_the_requests(serve: Serve, folder: Path, tmp_path: Path) -> None:
    server = serve(folder)
    urls = urls_of(server, folder)
    for index, of_index in ((None, 0), (tmp_path / "index", 0), ("s3://data/the-index", len(urls))):
        counts = []
        for _ in range(2):
            before = server.counters()["requests"].get("GET", 0)
            open_h5ad(urls, index=index, disk=Disk(0.001, 1e9)).close()
            counts.append(server.counters()["requests"]["GET"] - before)
        assert counts[0] >= len(urls)
        assert counts[1] == of_index
    assert len(list((folder / "the-index").iterdir())) == len(urls)
    assert len(list((tmp_path / "cache" / "loadstone").iterdir())) == len(urls)


def test_a_long_table_of_chunks_takes_few_rounds(serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """30,000 chunks an array are a B-tree of three levels, whose nodes HDF5 would read one after another."""
    x = sp.random_array((60_000, 50), density=0.02, format="csr", rng=np.random.default_rng(0), dtype=np.float32)
    (tmp_path / "set").mkdir()
    path = tmp_path / "set" / "a.h5ad"
    ad.AnnData(x, var=pd.DataFrame(index=[f"g{i}" for i in range(50)])).write_h5ad(path)
    rewrite(path, chunks=(2,))
    rounds = []
    fetch = metadata.fetch
    monkeypatch.setattr(metadata, "fetch", lambda *arguments: rounds.append(1) or fetch(*arguments))
    server = serve(tmp_path / "set")
    np.testing.assert_array_equal(rows_of([server.url(path)]), x.toarray())
    assert len(rounds) < 25


def test_what_only_hdf5_can_read_has_to_be_copied(serve: Serve, folder: Path) -> None:
    for path in folder.iterdir():
        rewrite(path, **ONLY_BY_HDF5[0])
    with pytest.raises(ValueError, match="must be copied there"):
        open_h5ad(urls_of(serve(folder), folder))


def test_a_dense_matrix_has_to_be_copied(serve: Serve, tmp_path: Path) -> None:
    folder = tiny.write(tmp_path / "dense", tiny.as_dense)
    with pytest.raises(ValueError, match="is dense; dense matrices are read from a disk"):
        open_h5ad(urls_of(serve(folder), folder))


def test_other_genes_are_an_error(serve: Serve, folder: Path) -> None:
    with h5py.File(folder / "part1.h5ad", "a") as file:
        file["var/_index"][3] = "another"
    with pytest.raises(ValueError, match=r"part0\.h5ad and .*part1\.h5ad differ in their genes: gene 3 is 'g3' in"):
        open_h5ad(urls_of(serve(folder), folder))


@pytest.mark.parametrize(
    ("urls", "storage", "error", "message"),
    [
        (["s3://data/none.h5ad"], None, FileNotFoundError, "s3://data/none.h5ad does not exist"),
        (["s3://data"], None, ValueError, "names no object"),
        (["ftp://host/a.h5ad"], None, ValueError, "ftp://"),
        (["s3://data/a.h5ad", "b.h5ad"], None, ValueError, "name one kind"),
        (["s3://data/a.h5ad"], {"colour": "red"}, ValueError, "colour"),
        (["b.h5ad"], {"timeout": "1s"}, ValueError, "storage is for URLs"),
    ],
)
def test_wrong_arguments(serve: Serve, folder: Path, urls: list, storage: dict, error: type, message: str) -> None:
    serve(folder)
    with pytest.raises(error, match=message):
        open_h5ad(urls, storage=storage)


def test_a_damaged_object_is_one_error(serve: Serve, folder: Path) -> None:
    path = folder / "part0.h5ad"
    path.write_bytes(path.read_bytes()[:3_000])
    with pytest.raises((OSError, ValueError), match=r"part0\.h5ad"):
        open_h5ad(urls_of(serve(folder), folder))


def test_a_plain_server_needs_no_bucket(serve: Serve, folder: Path) -> None:
    server = serve(folder)
    urls = [f"{server.endpoint}/any/{path.name}" for path in sorted(folder.iterdir())]
    np.testing.assert_array_equal(rows_of(urls, storage={"allow_http": True}), tiny.truth())


@pytest.mark.parametrize(
    ("url", "storage", "error"),
    [
        ("http://user:hidden@127.0.0.1:9/a.h5ad", {"allow_http": True}, ValueError),
        ("http://127.0.0.1:9/a.h5ad?sig=hidden", {"allow_http": True}, ValueError),
        (
            "s3://data/a.h5ad",
            {"endpoint": "http://127.0.0.1:9", "secret_access_key": "hidden", "token": "hidden"},
            OSError,
        ),
    ],
)
def test_no_secret_is_in_an_error(
    serve: Serve, folder: Path, monkeypatch: pytest.MonkeyPatch, url: str, storage: dict, error: type
) -> None:
    serve(folder)
    monkeypatch.setattr(objects, "PATIENCE_S", 0.1)
    with pytest.raises(error) as caught:
        open_h5ad(url, storage=storage)
    assert "hidden" not in str(caught.value)
    assert str(caught.value)
