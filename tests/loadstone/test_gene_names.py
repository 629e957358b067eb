"""Gene names are compared as h5py reads them, whatever is in the heaps in which HDF5 keeps them."""

from pathlib import Path
from tempfile import TemporaryDirectory

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadstone import open_h5ad


def write(path: Path, names: list[str], **options: object) -> Path:
    """A file of one cell with these genes."""
    with h5py.File(path, "w") as file:
        x = file.create_group("X")
        x.attrs.update({"encoding-type": "csr_matrix", "shape": (1, len(names))})
        x["indptr"], x["data"], x["indices"] = [0, 1], np.ones(1, np.float32), np.zeros(1, np.int32)
        file.create_dataset("var/_index", data=names, dtype=h5py.string_dtype(), **options)
    return path


def opens(*paths: Path) -> bool:
    """Whether the files are opened as one matrix. An error that is not for users fails the test."""
    try:
        open_h5ad(paths).close()
    except (ValueError, OSError):
        return False
    return True


names = st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30), min_size=1)


@given(names, st.data())
@settings(max_examples=40, deadline=None)
def test_files_are_alike_if_their_names_are(names: list[str], data: st.DataObject) -> None:
    others = data.draw(
        st.sampled_from([names, names[::-1], [*names[:-1], names[-1] + "x"], ["".join(names), *names[1:]]])
    )
    with TemporaryDirectory() as folder:
        a, b = (
            write(Path(folder) / "a.h5ad", names),
            write(Path(folder) / "b.h5ad", others, chunks=(3,), maxshape=(None,)),
        )
        c = write(Path(folder) / "c.h5ad", others)
        assert opens(a, b) == opens(a, c) == (names == others)


def test_names_in_many_heaps_and_in_long_ones(tmp_path: Path) -> None:
    names = [f"gene {i}" * (1 + i % 50) for i in range(5_000)] + ["x" * 100_000, "y" * 2_000_000, ""]
    a, b = write(tmp_path / "a.h5ad", names), write(tmp_path / "b.h5ad", names)
    assert opens(a, b)
    assert not opens(a, write(tmp_path / "c.h5ad", [*names[:2_000], "other", *names[2_001:]]))


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_damaged_heaps_are_what_h5py_makes_of_them(seed: int) -> None:
    rng = np.random.default_rng(seed)
    listed = [f"ENSG{i:011}" for i in range(300)]
    with TemporaryDirectory() as folder:
        a, b = write(Path(folder) / "a.h5ad", listed), write(Path(folder) / "b.h5ad", listed)
        raw = bytearray(b.read_bytes())
        with h5py.File(b) as file:
            references = file["var/_index"].id.get_offset()
        heaps = [raw.find(b"GCOL", place) for place in (0, len(raw) // 2)]
        start = int(rng.choice([references, *(heap for heap in heaps if heap >= 0)]))
        for place in (start + rng.integers(0, 300, rng.integers(1, 4))).tolist():
            raw[place] = int(rng.choice([0, 1, 255, rng.integers(256)]))
        b.write_bytes(raw)
        try:
            with h5py.File(b) as file:
                read = [bytes(name) for name in file["var/_index"][:]]
        except (OSError, RuntimeError):
            read = None
        assert opens(a, b) == (read == [name.encode() for name in listed])


@pytest.mark.parametrize("count", [1, 3])
def test_names_of_a_fixed_length_are_compared_too(tmp_path: Path, count: int) -> None:
    paths = [write(tmp_path / f"{i}.h5ad", ["a", "b"]) for i in range(count)]
    with h5py.File(paths[-1], "a") as file:
        del file["var/_index"]
        file["var/_index"] = np.array([b"a", b"b"])
    assert opens(*paths)
