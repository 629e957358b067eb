"""Loaders feed a model: the runs are recorded, valid and printed; wrong arguments and impossible records are found."""

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import loaders
from analysis.tables import steps as tables
from harness.condition import Condition
from harness.data.dataset import Dataset
from harness.records import jsonl
from harness.records.base import decode, encode
from harness.records.steps import FILE, Steps, impossible
from harness.records.validate import problems

torch = pytest.importorskip("torch")

Command = Callable[..., subprocess.CompletedProcess[str]]
FACTS = {"dataset_fingerprint": "f", "utc": "2026-01-01T00:00:00+00:00", "machine": "m"}
RUN = Steps(
    dataset="tiny", loader="native", workers=0, knobs={"block_size": 16}, size="small", device="cpu", dtype="float32",
    parameters=1_000, batch_size=32, length=256, status="ok", peak_flops_per_s=4e9, seconds=10.0, steps=100,
    cells=3_200, tokens=400_000, fetches=12.5, waiting_s=1.0, wait_median_s=0.001, wait_p90_s=0.1, copy_median_s=0.001,
    copy_p90_s=0.001, step_median_s=0.08, step_p90_s=0.09, flops=20_000_000_000, token_flops=10_000_000_000,
    provenance=FACTS,
)  # fmt: skip
HELD = replace(RUN, loader=None, knobs={}, fetches=None, waiting_s=None, wait_median_s=None, wait_p90_s=None)
ARGUMENTS = "--seconds", "0.5", "--batch-size", "8", "--length", "6"


@pytest.mark.slow
def test_loaders_feed_the_model_and_the_runs_are_recorded(harness: Command, tiny_folder: Path, tmp_path: Path) -> None:
    command = "steps", tiny_folder, "--loaders", "native,scdataset", *ARGUMENTS, "--results", tmp_path / "out"
    done = harness(*command)
    assert done.returncode == 0, done.stderr
    held, *fed = jsonl.read(tmp_path / "out" / FILE, Steps)
    assert list(problems(tmp_path / "out")) == []
    assert (held.loader, held.waiting_s) == (None, None)
    assert [run.loader for run in fed] == ["native", "scdataset"]
    for run in (held, *fed):
        assert (run.status, run.peak_flops_per_s) == ("ok", held.peak_flops_per_s)
        assert run.seconds >= 0.5
        assert run.cells <= 8 * run.steps
        assert 0 < run.tokens <= 6 * run.cells
        assert 0 < run.token_mfu < run.mfu
    assert all(0 < run.wait_share < 1 for run in fed)
    assert fed[0].knobs == fed[1].knobs == {"block_size": 16, "fetch_factor": 8}
    text = (tmp_path / "out" / "figures" / "tiny-steps-table.md").read_text()
    assert all(f"| {name}" in text for name in ("native", "scdataset", tables.NO_LOADER))


@pytest.mark.parametrize(
    ("length", "workers", "status", "reason"),
    [(6, 2, "skipped", "native cannot honour this condition"), (2, 0, "failed", "no room for a gene")],
)
def test_what_cannot_be_run_has_its_reason(
    tiny_set: Dataset, tmp_path: Path, length: int, workers: int, status: str, reason: str
) -> None:
    from harness.experiments.steps.worker import StepJob, answer

    condition = Condition(dataset="tiny", loader="native", batch_size=8, workers=workers)
    job = StepJob(
        adapter=loaders.NAMES["native"], dataset=tiny_set, store=tmp_path, condition=condition, size="small",
        length=length, device="cpu", is_held=False, seconds=0.1, answer=tmp_path / "answer.json",
    )  # fmt: skip
    assert StepJob.from_json(job.to_json()) == job
    answered = answer(job)
    assert (answered["status"], reason in answered["reason"]) == (status, True)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--size", "51M"), "Unknown size '51M'. Did you mean '51m'?"),
        (("--loaders", "nativ"), "Unknown loader 'nativ'. Did you mean 'native'?"),
        (("--device", "gpu"), "Unknown device 'gpu'"),
        (("--length", "2"), "--length is 2"),
        (("--batch-size", "0"), "--batch-size is 0"),
        (("--workers", "-1"), "--workers is -1"),
        (("--seconds", "nan"), "--seconds is nan"),
        pytest.param(
            ("--device", "cuda"),
            "There is no GPU that torch can use with CUDA",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU"),
        ),
    ],
)
def test_a_wrong_argument_is_refused(
    harness: Command, tiny_folder: Path, tmp_path: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    done = harness("steps", tiny_folder, *arguments)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert done.stderr.startswith(f"error: {sentence}")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("run", [RUN, HELD, replace(HELD, status="failed", reason="why", seconds=None, steps=None)])
def test_a_record_survives_its_line(run: Steps) -> None:
    assert decode(Steps, encode(run)) == run


def test_shares_and_rates_follow_from_the_record() -> None:
    assert (RUN.cells_per_s, RUN.tokens_per_s, RUN.wait_share) == (320, 40_000, 0.1)
    assert (RUN.mfu, RUN.token_mfu) == (0.5, 0.25)
    assert HELD.wait_share is None


@pytest.mark.parametrize("wrong", [{"status": "fine"}, {"steps": 0}, {"peak_flops_per_s": None}])
def test_a_record_without_what_makes_it_one_is_refused(wrong: dict) -> None:
    with pytest.raises(ValueError, match=r"its status is|it is ok, yet without"):
        replace(RUN, **wrong)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"tokens": 3_200 * 257}, "more tokens than its rows"),
        ({"token_flops": 30_000_000_000}, "more tokens than its rows"),
        ({"peak_flops_per_s": 1e9}, "computed at 200% of the peak"),
        ({"waiting_s": 9.0}, "longer than its window"),
        ({"status": "failed"}, "gives no reason"),
    ],
)
def test_what_cannot_be_true_is_found(changed: dict, message: str) -> None:
    assert impossible(RUN) == impossible(HELD) == []
    assert message in " ".join(impossible(replace(RUN, **changed)))


def test_the_table_has_the_latest_run_of_each_setting_and_says_which_wait_judges_nothing() -> None:
    later = replace(RUN, fetches=3.0, seconds=20.0)
    skipped = replace(RUN, loader="slaf", status="skipped", reason="no worker processes", workers=2, cells=None)
    frame = tables.table([RUN, HELD, skipped, later])
    assert frame["loader"].tolist() == [tables.NO_LOADER, "native", "slaf"]
    text = tables.markdown(frame)
    assert "| native | 100 | 80 (90) | 1 (100) | 5.0%\\* | 160 | 20,000 | 25.0% | 12.5% |" in text
    assert "| slaf, 2 workers: skipped, no worker processes | – |" in text
    assert tables.FEW in text
    assert tables.FEW not in tables.markdown(tables.table([RUN, HELD]))
    assert "peak of 0.004 TFLOP/s" in text
