"""Training: inputs and orders, the independence of the heads, and the continuation of a killed run."""

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from harness.data.dataset import Dataset
from harness.records import jsonl
from harness.records import training as records
from tests.conftest import program
from tests.tiny import GENES, truth

torch = pytest.importorskip("torch")
pytest.importorskip("sklearn")

from analysis.tables import training as tables  # noqa: E402
from harness.experiments import training  # noqa: E402 - needs torch and sklearn
from harness.experiments.heads import Counts, Heads  # noqa: E402

CPU = torch.device("cpu")
Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def cells(tiny_set: Dataset) -> training.Cells:
    return training.Cells(tiny_set, ("drug",))


def test_the_last_plate_and_a_sample_of_the_others_are_kept_for_testing(cells: training.Cells) -> None:
    plates = cells.plates
    everything = np.concatenate([cells.train, *cells.tests.values()])
    assert np.array_equal(np.sort(everything), np.arange(cells.dataset.n_cells))
    assert (plates[cells.tests["plate"]] == plates.max()).all()
    assert (plates[cells.tests["iid"]] < plates.max()).all()
    assert len(cells.tests["iid"]) == (plates < plates.max()).sum() // 16


def test_cells_of_one_plate_cannot_be_trained_on(harness: Command, tiny_folder: Path) -> None:
    done = harness("train", "--dataset", tiny_folder / "part0.h5ad")
    assert done.returncode == 2
    assert "cells of one plate" in done.stderr


def test_rare_pairs_are_drawn_more_often_and_unlabelled_cells_never(cells: training.Cells) -> None:
    cells.labels["cell_line"] = np.where(np.arange(cells.dataset.n_cells) % 10 == 0, 1, 0)
    cells.labels["cell_line"][7] = -1
    weights = cells.weights()
    drugs = cells.labels["drug"]
    assert weights[7] == 0
    of_one_drug = drugs == drugs[20]
    assert weights[20] > weights[21]
    assert weights[20] / weights[21] == pytest.approx(
        (of_one_drug & (cells.labels["cell_line"] == 0))[cells.train].sum()
        / (of_one_drug & (cells.labels["cell_line"] == 1))[cells.train].sum(),
        rel=0.01,
    )


def test_genes_are_chosen_by_their_counts_in_the_training_cells(cells: training.Cells) -> None:
    totals = truth()[cells.train].sum(axis=0)
    chosen = cells.most_counted(20)
    assert sorted(totals[chosen]) == pytest.approx(sorted(np.sort(totals)[-20:]))


def test_inputs_are_logarithms_of_normalised_counts_of_the_chosen_genes() -> None:
    x = truth()[495:505]  # row 500 is empty
    chosen = np.array([3, 40, 41, 200])
    inputs = training.Inputs(chosen, GENES, CPU)
    expected = np.log1p(x * (1e4 / np.maximum(x.sum(axis=1, keepdims=True), 1)))[:, chosen]
    eye = torch.eye(len(chosen))
    assert inputs(sp.csr_matrix(x)).of_cells.times(eye).numpy() == pytest.approx(expected)


def counts_of(x: np.ndarray) -> Counts:
    return Counts(sp.csr_matrix(x), CPU)


def test_a_step_stays_on_its_device() -> None:
    """Uses torch's meta device, which exists on every machine and does not mix with another device."""
    meta = torch.device("meta")
    heads = Heads(GENES, {"drug": 3, "moa": 2}, seed=0).to(meta)
    x = sp.csr_matrix(truth()[:8])
    labels = {task: torch.zeros(8, dtype=torch.int64) for task in heads.classes}
    with pytest.raises(RuntimeError, match="device"):
        heads.losses(Counts(x, meta), labels)
    heads.losses(Counts(x, meta), {task: answer.to(meta) for task, answer in labels.items()}).sum().backward()
    assert {parameter.grad.device for parameter in heads.parameters()} == {meta}


def test_heads_and_their_gradients_equal_those_of_dense_layers() -> None:
    heads = Heads(30, {"a": 3, "b": 5}, seed=0)
    rng = np.random.default_rng(0)
    x = (rng.random((8, 30)) * (rng.random((8, 30)) < 0.3)).astype(np.float32)
    logits = heads(counts_of(x))
    assert [part.shape[1] for part in logits] == [3, 5, 3, 5]
    dense = torch.from_numpy(x)
    weights = heads.first.detach().clone().requires_grad_()
    by_hand = dense @ weights
    assert torch.allclose(logits[1], by_hand[:, 3:8], atol=1e-5)
    (logits[0].square().sum() + logits[3].square().sum()).backward()
    first = torch.nn.functional.gelu(by_hand[:, 8 + 512 :])
    second = torch.nn.functional.gelu(first @ heads.later[1])
    ((by_hand[:, :3]).square().sum() + (second @ heads.later[3]).square().sum()).backward()
    assert torch.allclose(heads.first.grad, weights.grad, atol=1e-4)


def test_no_two_heads_share_a_parameter() -> None:
    heads = Heads(30, {"a": 3, "b": 5}, seed=0)
    labels = {task: torch.arange(4) % 3 for task in "ab"}
    losses = heads.losses(counts_of(np.eye(4, 30, dtype=np.float32)), labels)
    touched_by_head = []
    for loss in losses:
        gradients = torch.autograd.grad(loss, [heads.first, *heads.later], retain_graph=True, allow_unused=True)
        touched_by_head.append([g is not None and (g != 0).sum(dim=0) > 0 for g in gradients])
    for i, one in enumerate(touched_by_head):
        for other in touched_by_head[i + 1 :]:
            assert not any((a & b).any() for a, b in zip(one, other, strict=True) if a is not False and b is not False)


def test_cells_without_a_label_add_nothing_to_the_loss() -> None:
    heads = Heads(30, {"a": 3}, seed=0)
    x = np.eye(4, 30, dtype=np.float32)
    some = heads.losses(counts_of(x), {"a": torch.tensor([0, -1, 2, -1])})
    assert torch.allclose(some, heads.losses(counts_of(x[[0, 2]]), {"a": torch.tensor([0, 2])}))
    assert (heads.losses(counts_of(x), {"a": torch.full((4,), -1)}) == 0).all()


def test_every_order_draws_from_the_training_cells(tiny_set: Dataset) -> None:
    cells = training.Cells(tiny_set, ("drug",))
    cells.labels["cell_line"] = cells.labels["drug"] % 3
    assert tuple(training.SAMPLERS) == records.ARMS
    for arm, sampler in training.SAMPLERS.items():
        loader = cells.loader(sampler(cells), cells.train, seed=1)
        rows = np.concatenate([batch.rows for batch in loader])
        loader.close()
        assert len(rows) == len(cells.train)
        assert np.isin(rows, cells.train).all()
        assert (len(set(rows)) == len(rows)) == ("weighted" not in arm)
        assert np.array_equal(rows, cells.train) == (arm == "stream")


def test_orders_are_trained_once_and_compared(harness: Command, tiny_folder: Path, tmp_path: Path) -> None:
    command = ("train", "--dataset", tiny_folder, "--arms", "random,stream", "--genes", 100, "--results", "out")
    done = harness(*command, "--seeds", 1)
    assert done.returncode == 0, done.stderr
    assert "2 runs to make" in done.stdout
    second = harness(*command, "--seeds", 2)
    assert "2 runs to make" in second.stdout
    runs = jsonl.read(tmp_path / "out" / records.FILE, records.Run)
    assert [(run.seed, run.arm) for run in runs] == [(0, "random"), (0, "stream"), (1, "random"), (1, "stream")]
    assert set(runs[0].scores) == {"linear drug", "mlp drug"}
    for run in runs:
        log = records.curve_of(tmp_path / "out", run)
        assert log["losses"].shape == (run.minibatches, 2)
        assert log["plates"].shape == (run.minibatches,)
    names = {path.name for path in (tmp_path / "out" / "figures").iterdir()}
    assert {f"tiny-training-{name}" for name in ("f1.png", "f1.csv", "loss.png", "loss.csv", "table.md")} <= names


def test_wrong_arguments_are_refused(harness: Command, tiny_folder: Path) -> None:
    for arguments, message in (
        (("--arms", "sideways"), "Unknown order 'sideways'"),
        (("--genes", "few"), "--genes is few"),
        (("--seeds", "0"), "--seeds is 0"),
    ):
        done = harness("train", "--dataset", tiny_folder, *arguments)
        assert done.returncode == 2
        assert message in done.stderr
        assert "Traceback" not in done.stderr


CHECKPOINT_EVERY_STEP = """
import sys, json
from pathlib import Path
from harness.data.dataset import Dataset
from tests.harness.test_training import train

train(Dataset.from_dict(json.loads(sys.argv[1])), Path(sys.argv[2]), lambda done, total, more: print(done, flush=True))
"""


def train(dataset: Dataset, folder: Path, progress: Callable[[int, int, str], None]) -> None:
    """Trains on 50 genes of a data set in minibatches of 16, and writes a checkpoint after each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "CHECKPOINT_S", 0.0)
        patch.setitem(training.SETTINGS, "batch_size", 16)
        cells = training.Cells(dataset, ("drug",))
        training.train(cells, cells.most_counted(50), "block", 0, folder, progress)


def test_a_killed_run_continues_at_the_next_minibatch(tiny_set: Dataset, tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    steps: list[int] = []
    train(tiny_set, whole, lambda done, *_: steps.append(done))
    total = len(steps)
    stopped = program(CHECKPOINT_EVERY_STEP, json.dumps(tiny_set.to_dict()), killed)
    for line in stopped.stdout:
        if int(line) == total // 2:
            stopped.send_signal(signal.SIGKILL)
            break
    stopped.wait()
    resumed: list[int] = []
    train(tiny_set, killed, lambda done, *_: resumed.append(done))
    assert 1 < resumed[0] <= total // 2 + 2, "it started again or skipped minibatches"
    assert resumed[-1] == total
    (a,), (b,) = (list((folder / "training").iterdir()) for folder in (whole, killed))
    assert a.name == b.name
    with np.load(a) as one, np.load(b) as other:
        assert one["losses"] == pytest.approx(other["losses"], rel=1e-4)
        assert np.array_equal(one["plates"], other["plates"])


def test_a_jump_is_the_loss_after_a_boundary_minus_the_loss_before() -> None:
    loss = np.concatenate([np.full(40, 1.0), np.full(40, 3.0), np.full(5, 9.0)])
    assert tables.jump(loss, np.array([40])) == 2
    assert np.isnan(tables.jump(loss, np.array([80])))  # too close to the end


def test_a_run_is_read_back_with_its_key(tmp_path: Path) -> None:
    facts = {"dataset_fingerprint": "f", "utc": "2026-01-01T00:00:00+00:00", "machine": "m"}
    run = records.Run(
        dataset="d", arm="block", seed=0, genes=5, batch_size=64, fetch_factor=256, learning_rate=1e-3,
        minibatches=3, seconds=1.0, scores={"linear drug": {"iid": {"macro_f1": 0.5, "accuracy": 0.5}}},
        provenance=facts,
    )  # fmt: skip
    path = tmp_path / records.FILE
    jsonl.append(path, run)
    assert jsonl.read(path, records.Run) == [run]
    assert run.key == records.key_of("f", "block", 0, 5, 64, 256, 1e-3)
