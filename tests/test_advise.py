"""Advice is the fastest of what is mixed well enough, for every label, and its code runs."""

from pathlib import Path

import numpy as np
import pytest

from harness import results
from harness.__main__ import main
from harness.condition import Condition, expand
from harness.dataset import Dataset
from harness.results import Measurement
from harness.worker import save_order


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
    code = told[told.index("import loaders") :]
    exec(code.replace("range(10)", "range(1)"), {})
    assert main(["advise", "--dataset", where, "--results", str(measured), "--within", "-9"]) == 2
    assert "within -9 bits of random" in capsys.readouterr().err


def test_without_records_it_says_what_to_run(
    tiny_set: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["advise", "--dataset", str(tiny_set.paths[0].parent), "--results", str(tmp_path)]) == 2
    assert "make bench DATASET=" in capsys.readouterr().err


def test_code_is_of_the_condition() -> None:
    from analysis import advise

    condition = Condition(dataset="d", loader="native", output="dense", knobs=(("block_size", 4),))
    told = advise.code(condition, "d")
    compile(told, "advice", "exec")
    assert "output='dense'" in told
    assert "knobs=(('block_size', 4),)" in told
