"""`python -m harness cost`, as a user runs it."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from harness.commands import cost
from harness.machine.host import ROOT

Run = Callable[..., subprocess.CompletedProcess[str]]
REFERENCE = ROOT / "results" / "reference-2core"


def test_the_example_prints_the_post_s_bill_without_any_results(harness: Run, tmp_path: Path) -> None:
    done = harness("cost", "--example", "seed-004")
    assert done.returncode == 0, done.stderr
    assert "| as the post counts | 32.4 | 4.32 | 10.80 | – | 10.80 | 31,900 | GPUs |" in done.stdout
    assert not list(tmp_path.iterdir())


def test_a_scenario_names_what_binds(harness: Run) -> None:
    scenario = ("--cells", 62e6, "--step-ms", 60, "--producer-cells-per-s", 1000)
    done = harness("cost", *scenario, "--producers", 16)
    assert done.returncode == 0, done.stderr
    assert "producers: 16; GPUs: 8; binds: producers, 16,000 cells/s" in done.stdout
    assert "storage not stated" in done.stdout
    assert "producers: 32; GPUs: 8; binds: GPUs, 32,000 cells/s" in harness("cost", *scenario).stdout
    slow = harness("cost", *scenario, "--ttfb-ms", 30, "--connections", 3, "--cells-per-request", 1, "--producers", 1)
    assert "binds: requests, 100 cells/s" in slow.stdout
    free = harness("cost", "--cells", 62e6, "--step-ms", 60, "--producers", 0, "--gpu-price", "h100-list")
    assert "producers: 0; GPUs: 8; binds: GPUs" in free.stdout


def test_every_loader_of_a_results_folder_has_its_dollars(harness: Run, tmp_path: Path) -> None:
    (tmp_path / "r" / "figures").mkdir(parents=True)
    names = ["frontier.jsonl", "conversions.jsonl"]
    names += [f"figures/tahoe-chunks-frontier-{part}.csv" for part in ("table", "diversity")]
    for name in names:
        (tmp_path / "r" / name).write_bytes((REFERENCE / name).read_bytes())
    done = harness("cost", "--results", "r")
    assert done.returncode == 0, done.stderr
    assert "From a bucket: not measured" in done.stdout
    stem = tmp_path / "r" / "figures" / "tahoe-chunks-frontier-cost"
    frame = pd.read_csv(stem.with_suffix(".csv")).set_index("loader")
    assert stem.with_suffix(".png").exists()
    assert stem.with_suffix(".md").read_text() in done.stdout
    assert (frame["alone_usd"] > 0).all()
    assert frame.loc["native", "conversion_usd"] == 0 < frame.loc["annbatch", "conversion_usd"]
    assert frame["alone_usd"].is_monotonic_increasing


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--gpus", "-1"), "--gpus is -1"),
        (("--cells", "nan"), "--cells is nan"),
        (("--step-ms", "0"), "--step-ms is 0"),
        (("--example", "seed-04"), "Did you mean 'seed-004'?"),
        (("--producer-cells-per-s", "1", "--link-mbps", "5"), "do not go together"),
        (("--results", "nowhere"), "There is no results folder nowhere"),
        (("--producers", "0", "--prices", "none.toml"), "none.toml is no file of prices"),
        (("--producers", "0", "--node-price", "node-9"), "Did you mean 'node-8'?"),
        (("--gpus", "0", "--producers", "0"), "nothing limits the rate"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(harness: Run, arguments: tuple[str, ...], sentence: str) -> None:
    done = harness("cost", *arguments)
    assert done.returncode == 2, done.stdout + done.stderr
    assert sentence in done.stderr
    assert done.stderr.startswith("error: ")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(("machine", "grid"), cost.DOCUMENTED.items())
def test_the_document_shows_what_the_command_wrote(machine: str, grid: str) -> None:
    """`make figures` writes both from the committed records."""
    (page,) = (ROOT / "results" / machine / "figures").glob(f"*-{grid}-cost.md")
    assert f"<!-- {grid} -->\n\n{page.read_text()}\n<!-- /{grid} -->" in cost.PAGE.read_text()


def test_the_grid_bucket_has_its_rates_alone(harness: Run, tmp_path: Path) -> None:
    (tmp_path / "r" / "figures").mkdir(parents=True)
    xeon = ROOT / "results" / "reference-2core-xeon"
    for name in ("bucket.jsonl", "conversions.jsonl", "figures/tahoe-chunks-bucket-table.csv"):
        (tmp_path / "r" / name).write_bytes((xeon / name).read_bytes())
    done = harness("cost", "--grid", "bucket", "--results", "r")
    assert done.returncode == 0, done.stderr
    frame = pd.read_csv(tmp_path / "r" / "figures" / "tahoe-chunks-bucket-cost.csv")
    assert frame["ttfb_ms"].notna().all()
    assert (frame["requests_usd"] > 0).all()
    assert (frame["alone_usd"] > frame["requests_usd"]).all()
