"""What is kept of the layout of h5ad files gives the same rows without HDF5, whatever happened to files and index."""

import shutil
from contextlib import suppress
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadstone import open_h5ad
from loadstone.reading.row_starts import GROUP, MOST, RowStarts
from tests import tiny
from tests.loadstone.hdf5_forms import HDF5, rewrite

IN_INDEX = [form for form in HDF5 if "scaleoffset" not in form]


def rows_of(paths: list[Path], index: Path) -> np.ndarray:
    matrix = open_h5ad(paths, index=index, threads=2)
    try:
        return matrix[np.arange(len(matrix))].toarray()
    finally:
        matrix.close()


def without_hdf5(paths: list[Path], index: Path) -> np.ndarray:
    def refuse(*_: object) -> None:
        raise AssertionError("a file was opened with HDF5")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(h5py, "File", refuse)
        return rows_of(paths, index)


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    return sorted(tiny.write(tmp_path / "set").iterdir())


@pytest.mark.parametrize("form", IN_INDEX, ids=str)
def test_files_are_opened_again_without_hdf5(tmp_path: Path, paths: list[Path], form: dict) -> None:
    for path in paths:
        rewrite(path, **form)
    np.testing.assert_array_equal(rows_of(paths, tmp_path / "index"), tiny.truth())
    np.testing.assert_array_equal(without_hdf5(paths, tmp_path / "index"), tiny.truth())
    np.testing.assert_array_equal(without_hdf5(paths[:1], tmp_path / "index"), tiny.truth()[: tiny.LENGTHS[0]])


def test_copies_of_the_files_need_no_index_of_their_own(tmp_path: Path, paths: list[Path]) -> None:
    rows_of(paths, tmp_path / "index")
    shutil.copytree(tmp_path / "set", tmp_path / "elsewhere")  # with the times of the files
    copies = sorted((tmp_path / "elsewhere").iterdir())
    np.testing.assert_array_equal(without_hdf5(copies, tmp_path / "index"), tiny.truth())


def test_a_file_that_changed_is_read_anew(tmp_path: Path, paths: list[Path]) -> None:
    rows_of(paths, tmp_path / "index")
    for path in paths:
        rewrite(path, chunks=(11,), compression="gzip")
    np.testing.assert_array_equal(rows_of(paths, tmp_path / "index"), tiny.truth())


def test_files_that_only_hdf5_can_read_are_not_kept(tmp_path: Path, paths: list[Path]) -> None:
    for path in paths:
        rewrite(path, chunks=(64,), scaleoffset=0)
    for _ in range(2):
        with pytest.warns(UserWarning, match="is read through h5py"):
            np.testing.assert_array_equal(rows_of(paths, tmp_path / "index"), tiny.truth())
    assert not list((tmp_path / "index").glob("*"))


def test_other_genes_are_an_error_with_an_index_too(tmp_path: Path, paths: list[Path]) -> None:
    for path in paths:
        rows_of([path], tmp_path / "index")
    with h5py.File(paths[1], "a") as file:
        file["var/_index"][3] = "another"
    rows_of([paths[1]], tmp_path / "index")
    with pytest.raises(ValueError, match=r"differ in their genes: gene 3 is 'g3' in the first and 'another'"):
        rows_of(paths, tmp_path / "index")


def test_a_folder_that_cannot_be_written_to_is_an_error(tmp_path: Path, paths: list[Path]) -> None:
    (tmp_path / "index").write_text("a file")
    with pytest.raises(OSError, match="index"):
        rows_of(paths, tmp_path / "index")


@pytest.fixture(scope="module")
def indexed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Path]]:
    """(the index of one file of a few cells, that file)"""
    folder = tmp_path_factory.mktemp("indexed")
    paths = sorted(tiny.write(folder / "set").iterdir())[1:2]
    rows_of(paths, folder / "index")
    (kept,) = (folder / "index").iterdir()
    return kept, paths


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_a_damaged_index_is_not_used(indexed: tuple[Path, list[Path]], data: st.DataObject) -> None:
    """Cut at any place, or with any byte changed: the rows are right, and the index is whole again."""
    kept, paths = indexed
    truth = tiny.truth()[tiny.LENGTHS[0] : sum(tiny.LENGTHS[:2])]
    whole = kept.read_bytes()
    place = data.draw(st.integers(0, len(whole) - 1))
    if data.draw(st.booleans()):
        kept.write_bytes(whole[:place])
    else:
        kept.write_bytes(whole[:place] + bytes([whole[place] ^ data.draw(st.integers(1, 255))]) + whole[place + 1 :])
    np.testing.assert_array_equal(rows_of(paths, kept.parent), truth)
    np.testing.assert_array_equal(without_hdf5(paths, kept.parent), truth)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("data/place", lambda values: values + 10**9),
        ("data/size", lambda values: values * 0 - 1),
        ("indices/place", lambda values: values[:-1]),
        ("indices/size", lambda values: values.astype(np.int32)),
        ("beyond", lambda values: values[::-1].copy()),
        ("beyond", lambda values: values[:-1]),
        ("base", lambda values: values + 1),
        ("base", lambda values: values[:0]),
    ],
)
def test_an_index_that_cannot_be_true_is_an_error_or_not_used(tmp_path: Path, paths: list[Path], name, change) -> None:
    """With right checksums, as only somebody who means harm would write it."""
    rows_of(paths[:1], tmp_path / "index")
    (kept,) = (tmp_path / "index").iterdir()
    with np.load(kept) as arrays:
        changed = dict(arrays) | {name: change(arrays[name])}
    np.savez(kept, **changed)
    with suppress(ValueError):
        np.testing.assert_array_equal(rows_of(paths[:1], tmp_path / "index"), tiny.truth()[: tiny.LENGTHS[0]])


@given(st.lists(st.integers(0, 3), max_size=3 * GROUP))
def test_row_starts_are_those_of_indptr(lengths: list[int]) -> None:
    indptr = np.cumsum([0, *lengths])
    starts = RowStarts.of("a", indptr)
    assert len(starts) == len(lengths)
    np.testing.assert_array_equal(starts[np.arange(len(indptr))], indptr)
    np.testing.assert_array_equal(starts.whole(), indptr[:-1])
    assert starts.total == indptr[-1]
    assert starts.check(int(indptr[-1]))
    for element in range(0, int(indptr[-1]), 97):
        assert starts.row_of(element) == np.searchsorted(indptr, element, "right") - 1


def test_rows_of_too_many_values_are_an_error() -> None:
    starts = RowStarts.of("a", np.array([0, MOST]))
    assert starts.total == MOST
    with pytest.raises(ValueError, match="a: 1,024 rows have 4,294,967,296 values"):
        RowStarts.of("a", np.array([0, MOST + 1]))
