"""cellstream's archives are read as the library itself reads them, and damaged ones are refused."""

import json
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from loadstone import BlockLoader, BlockShuffling, open_csad
from loadstone.formats.csad import TRAILER, TRAILER_BYTES
from tests.loadstone import csad
from tests.loadstone.trust import GENES, OUTPUTS, X, read_all

pytest.importorskip("cellstream")


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, sp.csr_matrix]:
    cells = csad.some_cells(np.random.default_rng(0), 300)
    return csad.write(tmp_path_factory.mktemp("csad") / "cells.csad", cells), cells


def test_every_kind_of_cell_is_read_as_it_was_written(many: tuple[Path, sp.csr_matrix]) -> None:
    path, cells = many
    source = open_csad(path, threads=2)
    rows = np.random.default_rng(1).integers(0, 300, 500)
    read = source[rows]
    source.close()
    expected = cells[rows]
    for name in ("indptr", "indices"):
        np.testing.assert_array_equal(getattr(read, name), getattr(expected, name))
    np.testing.assert_array_equal(read.data, expected.data.astype(np.float32))


@pytest.mark.parametrize("output", OUTPUTS)
def test_minibatches_are_those_of_the_sampler(tmp_path: Path, output: str) -> None:
    path = csad.write(tmp_path / "a.csad", (X * 10).ceil().astype(np.uint32))
    expected = (X * 10).ceil().toarray()
    source = open_csad(path, output=output)
    loader = BlockLoader(source, sampler=BlockShuffling(3), batch_size=7, fetch_factor=2)
    rows = []
    for batch in loader:
        x = batch.x.toarray() if output == "csr" else batch.x
        assert x.dtype == np.float32
        np.testing.assert_array_equal(x, expected[batch.rows])
        rows += batch.rows.tolist()
    loader.close()
    assert sorted(rows) == list(range(len(expected)))


def test_other_values_than_counts_are_refused(tmp_path: Path) -> None:
    path = csad.write(tmp_path / "a.csad", X, "float32")
    with pytest.raises(ValueError, match=r"a\.csad holds cell by zstd.*pfordelta"):
        open_csad(path)


def index_of(whole: bytes) -> tuple[int, dict]:
    _, _, _, place, length, _, _ = TRAILER.unpack_from(whole, len(whole) - TRAILER_BYTES)
    return place, json.loads(whole[place : place + length])


def with_index(whole: bytes, edit: Callable[[dict], None]) -> bytes:
    """The same archive with an edited index, and a trailer to match."""
    place, index = index_of(whole)
    edit(index)
    text = json.dumps(index).encode()
    end, version, _, _, _, region, _ = TRAILER.unpack_from(whole, len(whole) - TRAILER_BYTES)
    trailer = TRAILER.pack(end, version, 0, place, len(text), region, zlib.crc32(text))
    return whole[:place] + text + trailer.ljust(TRAILER_BYTES, b"\0")


def with_member(whole: bytes, name: str, edit: Callable[[np.ndarray], None]) -> bytes:
    """The same archive with edited numbers in a member, int64."""
    (member,) = (m for m in index_of(whole)[1]["members"] if m["name"] == name)
    part = slice(member["offset"], member["offset"] + member["length"])
    numbers = np.frombuffer(whole[part], np.int64).copy()
    edit(numbers)
    return whole[: part.start] + numbers.tobytes() + whole[part.stop :]


def put(at: int, value: int) -> Callable[[np.ndarray], None]:
    return lambda numbers: numbers.__setitem__(at, value)


def member_at(k: int, **fields: object) -> Callable[[dict], None]:
    return lambda index: index["members"][k].update(fields)


DAMAGE = {
    "no archive": (lambda whole: b"PK" + whole[2:], "no archive of cellstream"),
    "cut": (lambda whole: whole[:-100], "truncated"),
    "nearly empty": (lambda whole: whole[:10], "no archive of cellstream"),
    "the index": (lambda whole: whole[: index_of(whole)[0]] + b"[" + whole[index_of(whole)[0] + 1 :], "checksum"),
    "a member outside": (lambda whole: with_index(whole, member_at(0, length=2**40)), "does not lie within"),
    "a member before": (lambda whole: with_index(whole, member_at(0, offset=-5)), "does not lie within"),
    "a member without a place": (lambda whole: with_index(whole, member_at(1, offset=None)), "TypeError"),
    "a member is missing": (lambda whole: with_index(whole, lambda index: index["members"].pop(1)), "KeyError"),
    "offsets fall": (lambda whole: with_member(whole, "x_offsets", put(3, 0)), "x_offsets falls at row 2"),
    "offsets end early": (lambda whole: with_member(whole, "x_offsets", put(-1, 2**40)), "x_offsets ends with"),
    "indptr begins late": (lambda whole: with_member(whole, "x_indptr", put(0, 2)), "x_indptr begins with 2"),
    "indptr ends early": (lambda whole: with_member(whole, "x_indptr", put(-1, 9**9)), "x_indptr ends with"),
    "too many values": (
        lambda whole: with_member(whole, "x_indptr", lambda v: v.__setitem__(slice(1, 11), v[11])),
        "more values than there are genes",
    ),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damaged_archives_are_refused_with_one_sentence(tmp_path: Path, kind: str) -> None:
    path = csad.write(tmp_path / "a.csad", (X * 10).ceil().astype(np.uint32))
    damage, message = DAMAGE[kind]
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match=message) as caught:
        open_csad(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("output", OUTPUTS)
def test_a_damaged_frame_names_the_file_and_the_cell(tmp_path: Path, output: str) -> None:
    path = csad.write(tmp_path / "a.csad", (X * 10).ceil().astype(np.uint32))
    (length,) = struct.unpack_from("<I", path.read_bytes(), 4096)
    for at, value in ((4096, 255), (4096 + 4, length), (4096 + 5, 255)):
        whole = bytearray(path.read_bytes())
        whole[at] = value
        damaged = tmp_path / "damaged.csad"
        damaged.write_bytes(whole)
        with pytest.raises(ValueError, match=r"damaged\.csad: the frame of cell 0 is damaged"):
            read_all(lambda: open_csad(damaged, output=output, threads=2))  # noqa: B023


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return csad.write(tmp_path_factory.mktemp("csad") / "small.csad", (X * 10).ceil().astype(np.uint32))


@settings(max_examples=400, deadline=None)
@given(data=st.data())
def test_any_damage_is_an_error_or_gives_valid_rows(small: Path, data: st.DataObject) -> None:
    """Frames have no checksum, so that a changed count cannot be noticed; but nothing else may come of it."""
    whole = bytearray(small.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    damaged = small.with_name("damaged.csad")
    damaged.write_bytes(whole[: data.draw(st.sampled_from([len(whole), len(whole) - 1, len(whole) // 2]))])
    try:
        batches = read_all(lambda: open_csad(damaged, threads=2))
    except (OSError, ValueError) as error:
        assert str(damaged) in str(error)  # noqa: PT017 - damage need not be an error
        return
    for batch in batches:
        batch.check_format(full_check=True)
        assert batch.shape[1] == GENES


def test_a_gene_that_does_not_exist_is_damage(tmp_path: Path) -> None:
    """The library refuses to write one, so the number of genes in the manifest is made smaller."""
    path = csad.write(tmp_path / "a.csad", (X * 10).ceil().astype(np.uint32))
    whole = path.read_bytes()
    number = f'"n_vars":{GENES}'.encode()
    number = number if number in whole else f'"n_vars": {GENES}'.encode()
    assert whole.count(number) == 1
    path.write_bytes(whole.replace(number, number.replace(str(GENES).encode(), b"%2d" % (GENES - 3))))
    with pytest.raises(ValueError, match=r"the frame of cell \d+ is damaged"):
        read_all(lambda: open_csad(path, threads=2))


def test_a_file_that_changes_is_noticed(tmp_path: Path) -> None:
    path = csad.write(tmp_path / "a.csad", (X * 10).ceil().astype(np.uint32))
    source = open_csad(path)
    with open(path, "r+b") as file:
        file.truncate(5_000)
    with pytest.raises(OSError, match="has changed since it was opened"):
        source[np.arange(60)]
    source.close()
