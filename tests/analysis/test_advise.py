"""`advise` recommends the fastest setting with diverse minibatches, and prints code that runs.

Minibatches must be diverse in every label, that is, in every obs column named as one.
"""

import re
from dataclasses import replace
from pathlib import Path

import anndata as ad
import numpy as np
import pytest
from scipy.sparse import csr_matrix

import loaders
from analysis import advise as advice
from analysis.diversity import mixing
from analysis.tables import summary
from harness.__main__ import main
from harness.condition import Condition
from harness.data.dataset import Dataset
from harness.grids import expand
from harness.machine import git
from harness.records import jsonl, orders
from harness.records.measurement import Measurement
from loaders.protocol import UNCONVERTED
from tests.conftest import skip_unless_available


@pytest.fixture
def measured(tiny_set: Dataset, tmp_path: Path) -> Path:
    """A results folder with invented records of the grid `smoke`.

    Blocks of 8 are fastest, and their minibatches hold a single plate. Random order in blocks of 1 is mixed.
    """
    grid = expand("smoke", tiny_set.name)
    rng = np.random.default_rng(0)
    for condition in grid.conditions:
        block = dict(condition.knobs).get("block_size", 1)
        random = condition.order == "random"
        m = Measurement(
            condition=condition, timing=grid.timing, repeat=0, status="ok", rows=1000 * block, seconds=1.0, fetches=9.0,
            peak_rss_bytes=5_000_000,
            provenance={"dataset_fingerprint": tiny_set.fingerprint, "git_dirty": False, "code": git.code()},
        )  # fmt: skip
        jsonl.append(tmp_path / "smoke.jsonl", m)
        if condition == grid.pair:
            jsonl.append(tmp_path / "smoke.jsonl", replace(m, again=True))
        mixed = rng.permutation(tiny_set.n_cells)
        ids = [mixed[16 * i : 16 * (i + 1)] if random and block == 1 else np.arange(16) for i in range(60)]
        orders.save(orders.path(tmp_path, condition, tiny_set.fingerprint), ids, 16)
    return tmp_path


def advise(dataset: Dataset, results: Path, *more: str) -> int:
    folder = str(dataset.paths[0].parent)
    return main(["advise", "--dataset", folder, "--grid", "smoke", "--results", str(results), *more])


def test_the_fastest_setting_diverse_enough_for_its_worst_label_is_advised(
    measured: Path, tiny_set: Dataset, capsys: pytest.CaptureFixture[str]
) -> None:
    assert advise(tiny_set, measured, "--within", "0.2") == 0
    printed = capsys.readouterr().out
    assert "0 measurements to make" in printed
    assert "worst label: " in printed
    assert "short of random, bits: " in printed
    assert "block_size=8" not in printed
    assert re.search(r"BlockLoader chooses block \d+ and fetch factor \d+", printed)
    assert not re.search(r"^reference ", printed, re.MULTILINE)
    code = printed[printed.index("from loadstone import") :]
    exec(code.replace("range(10)", "range(1)"), {})
    assert advise(tiny_set, measured, "--within", "-9") == 2
    error = capsys.readouterr().err
    assert "within -9 bits of random for every label" in error
    assert "--within" in error


def test_settings_are_judged_by_the_label_that_falls_short_most(measured: Path, tiny_set: Dataset) -> None:
    grid = expand("smoke", tiny_set.name)
    frame = summary.table(grid, tiny_set, jsonl.read(measured / "smoke.jsonl"), [], [], measured)
    rows = advice.candidates(frame, tiny_set, measured)
    mixed = mixing.table(frame, tiny_set, measured)
    shortfall = (
        (mixed["random_bits"] - mixed["entropy_bits"]).groupby([mixed["condition"].map(str), mixed["label"]]).first()
    )
    assert len(rows) > 2
    for row in rows.itertuples():
        of_labels = shortfall[str(row.condition)]
        assert row.short_bits == of_labels.max()
        assert row.worst == of_labels.idxmax()
        assert row.short_bits > of_labels.min()


def test_missing_measurements_are_made_and_without_labels_the_fastest_settings_are_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    x = ad.AnnData(csr_matrix(np.ones((300, 5), np.float32)))
    x.write_h5ad(tmp_path / "plain.h5ad")
    arguments = ["advise", "--dataset", str(tmp_path / "plain.h5ad"), "--results", str(tmp_path / "out")]
    assert main([*arguments, "--grid", "smoke", "--loaders", "native"]) == 0
    printed = capsys.readouterr().out
    assert "7 measurements to make" in printed
    assert len(jsonl.read(tmp_path / "out" / "smoke.jsonl")) == 7
    assert "diversity of minibatches was not judged" in printed
    assert "worst label" not in printed
    exec(printed[printed.index("from loadstone import") :].replace("range(10)", "range(1)"), {})


@pytest.mark.parametrize("output", ["csr", "dense"])
@pytest.mark.parametrize("loader", ["native", "scdataset", "annbatch", "native_zarr", "annloader"])
def test_the_code_of_the_advice_reads_every_cell(tiny_set: Dataset, tmp_path: Path, loader: str, output: str) -> None:
    """The printed code calls the library itself if the adapter can write such code; if not, it calls the adapter."""
    skip_unless_available(loader)
    path = tmp_path / "store"
    adapter = loaders.get(loader)
    if adapter.store != UNCONVERTED:
        path.mkdir()
        adapter.prepare(tiny_set, path, lambda cells: None)
    settings = {"scdataset": (("block_size", 4), ("fetch_factor", 2)), "native": (("block_size", 4),)}
    small_chunks = (("chunk_size", 8), ("preload_nchunks", 4))
    knobs = settings.get(loader, small_chunks if loader == "annbatch" else ())
    condition = Condition(
        dataset=tiny_set.name, loader=loader, order="random", output=output, batch_size=16, knobs=knobs
    )
    code = advice.code(condition, tiny_set, str(tiny_set.paths[0].parent), path)
    assert ("harness" in code) == (loader in ("native_zarr", "annloader"))
    if "harness" in code:
        compile(code, "advice", "exec")
        return
    shapes: list[int] = []
    (x,) = re.findall(r"for epoch in range\(10\):\n.*\n +(.*?),", code)
    program = code.replace("range(10)", "range(1)") + f"        shapes.append({x}.shape)\n"
    exec(program, {"shapes": shapes})
    assert sum(rows for rows, _ in shapes) == tiny_set.n_cells
    assert {genes for _, genes in shapes} == {tiny_set.n_genes}
