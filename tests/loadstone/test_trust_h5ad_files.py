"""h5ad files that are cut off, changed while open, linked to others, or differ in their genes: one clear error each."""

import os
import shutil
from pathlib import Path

import anndata as ad
import h5py
import numpy as np
import pytest
import scipy.sparse as sp

from loadstone import BlockLoader, BlockShuffling, open_h5ad
from tests.loadstone.trust import ROWS, X, read_h5ad


def test_a_pipe_is_refused_and_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.h5ad")
    with pytest.raises(OSError, match=r"a\.h5ad is not a regular file"):
        read_h5ad(tmp_path / "a.h5ad")


@pytest.mark.parametrize("cut", [100, 2_000, 9_000, -1])
def test_files_cut_off(h5ad: Path, cut: int) -> None:
    raw = h5ad.read_bytes()
    h5ad.write_bytes(raw[:cut])
    with pytest.raises(OSError, match=r"a.h5ad"):
        read_h5ad(h5ad)


@pytest.mark.parametrize("how", ["overwritten", "cut off", "longer"])
def test_files_that_change_while_they_are_read(h5ad: Path, how: str) -> None:
    source = open_h5ad(h5ad, threads=2)
    batches = iter(BlockLoader(source, sampler=BlockShuffling(4), batch_size=8, fetch_factor=2))
    next(batches)
    raw = h5ad.read_bytes()
    changed = {"overwritten": raw[::-1], "cut off": raw[: len(raw) // 2], "longer": raw + b"more"}[how]
    with h5ad.open("r+b") as file:
        file.truncate(0)
        file.write(changed)
    with pytest.raises(OSError, match=r"a.h5ad"):
        list(batches)
    source.close()


def test_a_file_that_is_replaced_while_open_is_read_as_opened(h5ad: Path, tmp_path: Path) -> None:
    """An open file exists as long as it is open, even without a name."""
    source = open_h5ad(h5ad, threads=2)
    (tmp_path / "b").write_bytes(b"other")
    (tmp_path / "b").rename(h5ad)
    np.testing.assert_array_equal(source[np.arange(ROWS)].toarray(), X.toarray())
    source.close()


def test_a_matrix_in_another_file_is_refused(h5ad: Path, tmp_path: Path) -> None:
    shutil.copy(h5ad, tmp_path / "other.h5ad")
    with h5py.File(h5ad, "a") as file:
        del file["X/data"]
        file["X/data"] = h5py.ExternalLink("other.h5ad", "/X/data")
    with pytest.raises(ValueError, match=r"lies in another file"):
        read_h5ad(h5ad)


def _genes(path: Path, names: list[str]) -> Path:
    x = sp.csr_matrix(np.eye(3, len(names), dtype=np.float32))
    data = ad.AnnData(x)
    data.var_names = names
    data.write_h5ad(path)
    return path


def test_files_must_have_the_same_genes(tmp_path: Path) -> None:
    a = _genes(tmp_path / "a.h5ad", ["x", "y", "y", "z"])
    for names, message in (
        (["x", "y", "z", "y"], "gene 2 is 'y' in the first and 'z' in the second"),
        (["x", "y", "y", "w"], "gene 3 is 'z' in the first and 'w' in the second"),
    ):
        b = _genes(tmp_path / "b.h5ad", names)
        with pytest.raises(ValueError, match=rf"a.h5ad and .*b.h5ad differ in their genes: {message}"):
            open_h5ad([a, b])
    b = _genes(tmp_path / "b.h5ad", ["x", "y", "y", "z"])  # repeated names, as in files of 10x Genomics
    source = open_h5ad([a, b])
    assert len(source) == 6
    source.close()


def test_the_genes_of_raw_are_compared_for_raw(tmp_path: Path) -> None:
    paths = []
    for i, names in enumerate((["p", "q"], ["q", "p"])):
        whole = ad.AnnData(sp.csr_matrix(np.eye(2, dtype=np.float32)))
        whole.var_names = names
        part = whole[:, ["p"]].copy()
        part.raw = whole
        part.write_h5ad(tmp_path / f"{i}.h5ad")
        paths.append(tmp_path / f"{i}.h5ad")
    open_h5ad(paths).close()
    with pytest.raises(ValueError, match=r"gene 0 is 'p' in the first and 'q' in the second"):
        open_h5ad(paths, matrix="raw/X")
