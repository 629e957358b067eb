"""Advice is the fastest of what is mixed well enough, for every label, and its code runs."""

import re
from pathlib import Path

import numpy as np
import pytest

import loaders
from harness import results
from harness.__main__ import main
from harness.condition import Condition, expand
from harness.dataset import Dataset
from harness.results import Measurement
from harness.worker import save_order
from loaders.protocol import UNCONVERTED
from tests.conftest import skip_unless_available


@pytest.fixture
def measured(tiny_set: Dataset, tmp_path: Path) -> Path:
    """Records of the grid `smoke`: blocks of 8 are fastest and of one plate each; single cells are mixed."""
    grid = expand("smoke", tiny_set.name)
    rng = np.random.default_rng(0)
    for condition in grid.conditions:
        block = dict(condition.knobs).get("block_size", 1)
        random = condition.order == "random"
        m = Measurement(
            condition=condition, timing=grid.timing, repeat=0, status="ok", rows=1000 * block, seconds=1.0, fetches=9.0,
            peak_rss_bytes=5_000_000,
            provenance={"dataset_fingerprint": tiny_set.fingerprint, "git_dirty": False},
        )  # fmt: skip
        results.append(tmp_path / "smoke.jsonl", m)
        mixed = rng.permutation(tiny_set.n_cells)
        ids = [mixed[16 * i : 16 * (i + 1)] if random and block == 1 else np.arange(16) for i in range(60)]
        save_order(results.order_path(tmp_path, condition, tiny_set.fingerprint), ids, 16)
    return tmp_path


def test_the_fastest_that_is_mixed(measured: Path, tiny_set: Dataset, capsys: pytest.CaptureFixture[str]) -> None:
    where = str(tiny_set.paths[0].parent)
    assert main(["advise", "--dataset", where, "--results", str(measured), "--within", "0.2"]) == 0
    told = capsys.readouterr().out
    head, *_ = (line for line in told.splitlines() if "short of random, plate" in line)
    assert "short of random, drug" in head
    assert "block_size=8" not in told
    assert "reference" not in told
    code = told[told.index("from loadstone import") :]
    exec(code.replace("range(10)", "range(1)"), {})
    assert main(["advise", "--dataset", where, "--results", str(measured), "--within", "-9"]) == 2
    assert "within -9 bits of random" in capsys.readouterr().err


def test_without_records_it_says_what_to_run(
    tiny_set: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["advise", "--dataset", str(tiny_set.paths[0].parent), "--results", str(tmp_path)]) == 2
    assert "make bench DATASET=" in capsys.readouterr().err


@pytest.mark.parametrize("output", ["csr", "dense"])
@pytest.mark.parametrize("loader", ["native", "scdataset", "annbatch", "native_zarr", "annloader"])
def test_the_code_reads_every_cell(tiny_set: Dataset, tmp_path: Path, loader: str, output: str) -> None:
    """By the library's own API where the adapter knows it; through the adapter else."""
    from analysis import advise

    skip_unless_available(loader)
    path = tmp_path / "store"
    adapter = loaders.get(loader)
    if adapter.store != UNCONVERTED:
        path.mkdir()
        adapter.prepare(tiny_set, path, lambda cells: None)
    settings = {"scdataset": (("block_size", 4), ("fetch_factor", 2)), "native": (("block_size", 4),)}
    small = (("chunk_size", 8), ("preload_nchunks", 4))
    knobs = settings.get(loader, small if loader == "annbatch" else ())
    condition = Condition(
        dataset=tiny_set.name, loader=loader, order="random", output=output, batch_size=16, knobs=knobs
    )
    told = advise.code(condition, tiny_set, str(tiny_set.paths[0].parent), path)
    assert ("harness" in told) == (loader in ("native_zarr", "annloader"))
    if "harness" in told:
        compile(told, "advice", "exec")
        return
    seen: list[int] = []
    (x,) = re.findall(r"for epoch in range\(10\):\n.*\n +(.*?),", told)
    program = told.replace("range(10)", "range(1)") + f"        seen.append({x}.shape)\n"
    exec(program, {"seen": seen})
    assert sum(rows for rows, _ in seen) == tiny_set.n_cells
    assert {genes for _, genes in seen} == {tiny_set.n_genes}
