"""Trains the model of `harness.model` on the minibatches of several loaders, each in a process of its own."""

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import loaders
from harness.condition import Condition
from harness.data.dataset import Dataset
from harness.errors import UserError
from harness.experiments.steps.worker import StepJob
from harness.machine import host
from harness.machine.interpreter import interpreter
from harness.model.device import autocast_dtype, device_name
from harness.model.sizes import Size
from harness.records.steps import Steps
from harness.run.process import death
from harness.run.provenance import provenance
from harness.run.stores import store_path
from loadstone.tokens.batch import FIRST

BLOCK = 16
CHUNKS = 32  # of a fetch, for loaders that read so many chunks at a time
LONGEST_START_S = 300.0  # for the imports, the first fetch and the steps that are not counted


def knobs(loader: str, batch_size: int, fetch_factor: int) -> dict[str, int]:
    """The parameters with which a loader has the same buffer as others, as far as it has parameters for this."""
    known = loaders.get(loader).knobs
    if {"block_size", "fetch_factor"} <= {*known}:
        return {"block_size": BLOCK, "fetch_factor": fetch_factor}
    if {"chunk_size", "preload_nchunks"} <= {*known}:
        return {"chunk_size": max(1, batch_size * fetch_factor // CHUNKS), "preload_nchunks": CHUNKS}
    return {}


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What all runs of a command have in common.

    size: the name of the model in SIZES. shape: the same, with the length and the minibatch to use. device: "cpu" or
    "cuda". seconds: of each run.
    """

    dataset: Dataset
    size: str
    shape: Size
    device: str
    seconds: float


def runs(trial: Trial, names: Sequence[str], workers: int) -> Iterator[Steps]:
    """The run without a loader, which measures the peak as well, and then one for each of the named loaders.

    The minibatch that is held comes from the first loader that can be run. workers: worker processes of the loaders.
    Raises UserError if none can.
    """
    reasons = []
    for name in names:
        held = run(trial, name, 0)
        if held.status == "ok":
            break
        reasons.append(f"{name}: {held.reason}")
    else:
        raise UserError(f"No loader gave a minibatch to train on. {'; '.join(reasons)}")
    yield held
    for name in names:
        yield run(trial, name, workers, held.peak_flops_per_s)


def run(trial: Trial, loader: str, workers: int, peak_flops_per_s: float | None = None) -> Steps:
    """One run, in a fresh process. peak_flops_per_s: None: it is measured, and all steps take the first minibatch."""
    is_held = peak_flops_per_s is None
    dataset, shape, device = trial.dataset, trial.shape, torch.device(trial.device)
    setting = knobs(loader, shape.batch_size, shape.fetch_factor)
    condition = Condition(
        dataset=dataset.name, loader=loader, batch_size=shape.batch_size, workers=workers, knobs=tuple(setting.items())
    )
    answer = {"status": "skipped", "reason": loaders.unavailable(loader)}
    if answer["reason"] is None:
        with tempfile.TemporaryDirectory() as folder:
            job = StepJob(
                adapter=loaders.NAMES[loader], dataset=dataset, store=store_path(dataset, loader).resolve(),
                condition=condition, size=trial.size, length=shape.length, device=trial.device, is_held=is_held,
                seconds=trial.seconds, answer=Path(folder) / "answer.json",
            )  # fmt: skip
            answer = answered(job)
    of_loader = {"loader": None, "knobs": {}} if is_held else {"loader": loader, "knobs": setting}
    return Steps(
        **of_loader,
        **{"peak_flops_per_s": peak_flops_per_s} | answer,
        workers=workers,
        dataset=dataset.name,
        size=trial.size,
        device=device_name(device),
        dtype=str(autocast_dtype(device)).removeprefix("torch."),
        parameters=shape.parameters(FIRST + dataset.n_genes),
        batch_size=shape.batch_size,
        length=shape.length,
        provenance=provenance(loader, dataset),
    )


def answered(job: StepJob) -> dict[str, Any]:
    """What a child process answers to a job; "timeout" or "failed", with the reason, if it gives no answer."""
    with tempfile.TemporaryFile() as log:
        child = subprocess.Popen(
            [interpreter(job.condition.loader), "-m", "harness.experiments.steps.worker"],
            stdin=subprocess.PIPE, stdout=log, stderr=log, cwd=host.ROOT, start_new_session=True,
            env=os.environ | host.thread_budget(None) | {"PYTHONWARNINGS": "ignore"},
        )  # fmt: skip
        try:
            with suppress(BrokenPipeError):  # the exit code of a dead child gives the reason
                child.communicate(job.to_json().encode(), timeout=job.seconds + LONGEST_START_S)
        except subprocess.TimeoutExpired:
            return {"status": "timeout", "reason": f"no result after {job.seconds + LONGEST_START_S:g} s"}
        finally:
            status = child.poll()
            with suppress(ProcessLookupError):  # it and the processes that it started may have exited
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        if job.answer.exists():
            return json.loads(job.answer.read_text())
        log.seek(0)
        return {"status": "failed", "reason": death(status, log.read().decode(errors="replace"))}
