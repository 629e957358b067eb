"""The generated data set has the specified statistics and is the same every time."""

import json
import time
from pathlib import Path

import anndata as ad
import h5py
import numpy as np
import pytest
import scipy.sparse as sp

from analysis.diversity.entropy import of_codes
from harness.data import catalogue
from harness.data.dataset import Dataset
from harness.data.synthetic import cells
from harness.data.synthetic.h5chunks import chunk_like_anndata
from tests.conftest import program

N = 4_200


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    folder = tmp_path_factory.mktemp("generated") / "mini"
    cells.generate(folder, n_cells=N, seed=0)
    return catalogue.load(str(folder))


def test_shape_and_statistics_are_those_specified(generated: Dataset) -> None:
    assert (len(generated.paths), generated.n_cells, generated.n_genes) == (14, N, 62_710)
    counts = np.concatenate([ad.read_h5ad(path).X.data for path in generated.paths])
    assert len(counts) / N == pytest.approx(1_400, rel=0.03)
    assert counts.mean() == pytest.approx(1.6, rel=0.03)
    assert (counts == counts.round()).all()
    assert counts.min() == 1
    assert of_codes(generated.labels("plate")) == pytest.approx(3.77, abs=0.01)
    assert set(generated.label_names) == {"plate", "drug", "dose", "cell_line", "moa_broad", "moa_fine"}
    sizes = {name: len(np.unique(generated.labels(name))) for name in generated.label_names}
    assert sizes["cell_line"] == 50
    assert sizes["dose"] == 3
    assert sizes["drug"] > 370  # of 379: with 4,200 cells a few wells stay empty


def test_files_are_stored_as_anndata_stores_them(generated: Dataset, tmp_path: Path) -> None:
    path = generated.paths[0]
    x = ad.read_h5ad(path).X
    ad.AnnData(x).write_h5ad(tmp_path / "same.h5ad", compression="gzip")
    with h5py.File(path) as ours, h5py.File(tmp_path / "same.h5ad") as theirs:
        for name, dtype in (("data", np.float32), ("indices", np.int32)):
            one, other = ours["X"][name], theirs["X"][name]
            assert one.dtype == dtype
            assert (one.compression, one.compression_opts) == (other.compression, other.compression_opts)
            assert one.chunks[0] == pytest.approx(other.chunks[0], rel=0.2)  # set from the expected length
    assert x.has_sorted_indices
    assert x.has_canonical_format


def test_the_length_of_chunks_changes_nothing_but_the_chunks(generated: Dataset, tmp_path: Path) -> None:
    cells.generate(tmp_path / "long", n_cells=N, seed=0, chunk_values=96_077)
    for path in generated.paths:
        with h5py.File(path) as one, h5py.File(tmp_path / "long" / path.name) as other:
            assert other["X/data"].chunks == other["X/indices"].chunks == (96_077,)
            assert (
                one["X/data"].chunks
                == one["X/indices"].chunks
                == (chunk_like_anndata(1_400 * len(one["obs/drug/codes"])),)
            )
            for name in ("data", "indices", "indptr"):
                assert np.array_equal(one["X"][name], other["X"][name])
                assert one["X"][name].dtype == other["X"][name].dtype
        one, other = ad.read_h5ad(path), ad.read_h5ad(tmp_path / "long" / path.name)
        assert one.obs.equals(other.obs)
        assert one.var.equals(other.var)


def test_the_width_of_indices_changes_nothing_else(generated: Dataset, tmp_path: Path) -> None:
    cells.generate(tmp_path / "wide", n_cells=N, seed=0, index_bytes=8)
    for path in generated.paths:
        with h5py.File(path) as one, h5py.File(tmp_path / "wide" / path.name) as other:
            assert (one["X/indices"].dtype, other["X/indices"].dtype) == (np.int32, np.int64)
            assert other["X/indices"].chunks == one["X/indices"].chunks
            for name in ("data", "indices", "indptr"):
                assert np.array_equal(one["X"][name], other["X"][name])


def test_the_chunks_of_tahoe_are_those_that_h5py_would_choose() -> None:
    entries = catalogue.entries()
    mini, chunks = entries["tahoe-mini"], entries["tahoe-chunks"]
    assert chunks["synthetic"] == mini["synthetic"] | {"chunk_values": chunk_like_anndata(12_592_995_937)}
    assert {**chunks, "about": "", "synthetic": {}} == {**mini, "about": "", "synthetic": {}}
    assert entries["tahoe-int64"]["synthetic"] == chunks["synthetic"] | {"index_bytes": 8}


def test_a_folder_is_generated_again_if_other_chunks_are_asked_for(tmp_path: Path) -> None:
    folder = tmp_path / "mini"

    def generate(chunk_values: int | None) -> tuple[int, int]:
        """(when the first file was written, the length of its chunks)"""
        cells.generate(folder, n_cells=140, seed=0, chunk_values=chunk_values)
        path = folder / "plate1.h5ad"
        with h5py.File(path) as file:
            return path.stat().st_mtime_ns, file["X/data"].chunks[0]

    default = generate(None)
    assert generate(None) == default
    assert json.loads((folder / "recipe.json").read_text()) == {"recipe": 1, "n_cells": 140, "seed": 0}
    other = generate(5_000)
    assert other[1] == 5_000
    assert generate(5_000) == other
    assert generate(None)[1] == default[1]


def test_an_interrupted_generation_is_resumed_only_with_the_same_chunks(tmp_path: Path) -> None:
    def stop_after_a_plate(done: int, total: int) -> None:
        if (tmp_path / "mini.partial" / "plate1.h5ad").exists():
            raise InterruptedError

    def first_file(chunk_values: int) -> int:
        with pytest.raises(InterruptedError):
            cells.generate(
                tmp_path / "mini", n_cells=140, seed=0, chunk_values=chunk_values, progress=stop_after_a_plate
            )
        return (tmp_path / "mini.partial" / "plate1.h5ad").stat().st_mtime_ns

    once = first_file(5_000)
    assert first_file(5_000) == once
    assert first_file(6_000) != once
    assert not (tmp_path / "mini").exists()


def test_cells_are_grouped_by_drug_and_dose_with_cell_lines_mixed(generated: Dataset) -> None:
    for path in generated.paths:
        obs = ad.read_h5ad(path, backed="r").obs
        well = obs["drug"].astype(str) + obs["dose"].astype(str)
        assert (well != well.shift()).sum() == well.nunique()
        assert (obs["cell_line"].astype(str) != obs["cell_line"].astype(str).shift()).mean() > 0.9
        assert obs["plate"].nunique() == 1


def test_the_doses_of_a_drug_are_on_different_plates() -> None:
    design = cells.Design(N, 0)
    places = {}
    for plate, wells in enumerate(design.wells):
        for well in wells:
            places.setdefault(well // 3, []).append((well % 3, plate))
    assert len(places) == 379
    for positions in places.values():
        assert sorted(dose for dose, _ in positions) == [0, 1, 2]
        assert len({plate for _, plate in positions}) == 3


def test_the_cells_depend_on_the_parameters_and_not_on_the_threads(
    generated: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cells, "available_cores", lambda: 1)
    cells.generate(tmp_path / "again", n_cells=N, seed=0)
    cells.generate(tmp_path / "other", n_cells=N, seed=1)
    one, same, other = (
        ad.read_h5ad(folder / "plate3.h5ad")
        for folder in (generated.paths[0].parent, tmp_path / "again", tmp_path / "other")
    )
    assert (one.X != same.X).nnz == 0
    assert one.obs.equals(same.obs)
    assert one.shape != other.shape or (one.X != other.X).nnz > 0


def test_a_killed_generation_looks_unfinished_and_keeps_its_whole_plates(tmp_path: Path) -> None:
    folder, partial = tmp_path / "mini", tmp_path / "mini.partial"
    code = (
        "import sys; from pathlib import Path; from harness.data.synthetic import cells;"
        "cells.generate(Path(sys.argv[1]), n_cells=8_000, seed=0)"
    )
    generating = program(code, folder)
    deadline = time.monotonic() + 60
    while len(list(partial.glob("*.h5ad"))) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    generating.kill()
    generating.wait()
    assert not folder.exists()
    kept = {path: path.stat().st_mtime_ns for path in partial.glob("*.h5ad")}
    cells.generate(folder, n_cells=8_000, seed=0)
    assert len(list(folder.glob("*.h5ad"))) == 14
    assert all((folder / path.name).stat().st_mtime_ns == time_ns for path, time_ns in kept.items())
    assert catalogue.load(str(folder)).n_cells == 8_000


@pytest.mark.slow
def test_a_linear_model_learns_the_drug_and_is_worse_on_a_new_plate() -> None:
    """The model is the nearest class mean of log counts, for 60 drugs; cells are held out at random or by plate."""
    design = cells.Design(140_000, 0)
    counts_of, drugs, plates = [], [], []
    for plate in range(cells.PLATES):
        obs = design.obs(plate)
        obs = obs[obs["drug"] < 60].reset_index(drop=True)
        for start in range(0, len(obs), cells.SLAB):
            counts, genes, lengths = design.sample(plate, obs, start)
            indptr = np.concatenate([[0], np.cumsum(lengths)])
            counts_of.append(sp.csr_matrix((np.log1p(counts), genes, indptr), shape=(len(lengths), cells.GENES)))
        drugs.append(obs["drug"].to_numpy())
        plates.append(np.full(len(obs), plate))
    x, drug, plate = sp.vstack(counts_of, "csr"), np.concatenate(drugs), np.concatenate(plates)
    fold = np.random.default_rng(0).integers(0, cells.PLATES, len(drug))
    at_random, by_plate = accuracy(x, drug, fold), accuracy(x, drug, plate)
    assert at_random > 10 / 60
    assert by_plate < 0.8 * at_random


def accuracy(x: sp.csr_matrix, y: np.ndarray, fold: np.ndarray) -> float:
    """The accuracy of the nearest class mean, averaged over folds; the class means are those of the other folds."""
    groups = [fold == k for k in range(cells.PLATES)]
    parts = [x[group] for group in groups]
    members = [sp.csr_matrix((np.ones(g.sum()), (y[g], np.arange(g.sum()))), (y.max() + 1, g.sum())) for g in groups]
    sums = [(member @ part).toarray() for member, part in zip(members, parts, strict=True)]
    sizes = [np.asarray(member.sum(axis=1)) for member in members]
    accuracies = []
    for part, group, held_out, size in zip(parts, groups, sums, sizes, strict=True):
        train, number = sum(sums) - held_out, sum(sizes) - size
        means = train / np.maximum(number, 1)
        means -= means.mean(axis=0)
        means /= np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1e-9)
        centre = train.sum(axis=0) / number.sum()
        accuracies.append((np.argmax(part @ means.T - centre @ means.T, axis=1) == y[group]).mean())
    return float(np.mean(accuracies))
