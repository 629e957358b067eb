"""The child process of `harness.experiments.steps.run`: one loader feeds one model.

    python -m harness.experiments.steps.worker < job

It writes its answer, as JSON, to the file that the job names.
"""

import json
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import count, repeat
from pathlib import Path
from typing import Any

import numpy as np
import torch

import loaders
from harness.condition import Condition
from harness.data.dataset import Dataset
from harness.machine import process_usage
from harness.model.device import autocast, synchronise
from harness.model.peak import peak_flops_per_s
from harness.model.sizes import BINS, SIZES, Size
from harness.model.transformer import Transformer
from harness.run.worker import import_libraries
from loaders.protocol import Incompatible, Loader
from loadstone.tokens import BinnedTokens, TokenBatch, vocabulary
from loadstone.tokens.batch import FIRST

WARMUP_STEPS = 5
LEARNING_RATE = 1e-4


@dataclass(frozen=True, kw_only=True)
class StepJob:
    """What the child is told.

    adapter: "module:Class". store: the folder of the loader's store. size, length: the model, and the tokens of a row.
    is_held: all steps take the loader's first minibatch. seconds: of the window. answer: the file to write.
    """

    adapter: str
    dataset: Dataset
    store: Path
    condition: Condition
    size: str
    length: int
    device: str
    is_held: bool
    seconds: float
    answer: Path

    def to_json(self) -> str:
        special = {"dataset": self.dataset.to_dict(), "condition": self.condition.to_dict()}
        return json.dumps(vars(self) | special | {"store": str(self.store), "answer": str(self.answer)})

    @classmethod
    def from_json(cls, text: str) -> "StepJob":
        values = json.loads(text)
        dataset, condition = Dataset.from_dict(values["dataset"]), Condition.from_dict(values["condition"])
        paths = {name: Path(values[name]) for name in ("store", "answer")}
        return cls(**values | {"dataset": dataset, "condition": condition} | paths)


def main() -> None:
    process_usage.die_with_parent()
    job = StepJob.from_json(sys.stdin.read())
    job.answer.write_text(json.dumps(answer(job)))


def answer(job: StepJob) -> dict[str, Any]:
    """The status of a job, with what was measured or a reason. An exception of a library becomes the reason."""
    try:
        return {"status": "ok", **run(job)}
    except Incompatible as reason:
        return {"status": "skipped", "reason": f"{job.condition.loader} cannot honour this condition: {reason}"}
    except Exception as error:
        traceback.print_exc()
        return {"status": "failed", "reason": f"{type(error).__name__}: {error}"}


def run(job: StepJob) -> dict[str, Any]:
    """Trains, and returns the fields of `records.steps.Steps` that were measured; the peak only if a batch is held."""
    device, size = torch.device(job.device), SIZES[job.size]
    peak = {"peak_flops_per_s": peak_flops_per_s(device)} if job.is_held else {}
    adapter = loaders.load(job.adapter)
    import_libraries(adapter)
    torch.manual_seed(0)
    tokens = BinnedTokens(vocabulary=vocabulary(job.dataset.n_genes), length=job.length, bins=BINS)
    train = trainer(size, FIRST + job.dataset.n_genes, device)
    with closing(adapter.open(job.dataset, job.store, job.condition, rows=False)) as loader:
        batches = token_batches(loader, tokens)
        if not job.is_held:
            fetch_rows = loader.fetch_rows * max(1, job.condition.workers)
            measured = measure(batches, train, size, device, job.seconds)
            return measured | {"fetches": measured["cells"] / fetch_rows}
        held = next(batches)
        batches.close()
    of_waiting = dict.fromkeys(("waiting_s", "wait_median_s", "wait_p90_s"))
    return measure(repeat(held), train, size, device, job.seconds) | of_waiting | peak


def token_batches(loader: Loader, tokens: Callable[[Any], TokenBatch]) -> Iterator[TokenBatch]:
    """The tokens of a loader's minibatches, epoch after epoch. They are made in `next()`, in this thread."""
    for index in count():
        cells = 0
        for batch in loader.epoch(index):
            cells += batch.x.shape[0]
            yield tokens(batch.x)
        if not cells:
            raise RuntimeError("the loader delivered no cell in an epoch")


def trainer(size: Size, tokens: int, device: torch.device) -> Callable[[tuple[torch.Tensor, ...]], None]:
    """A function that makes one step of AdamW on (ids, mask, values), which are on the device. tokens: of all genes."""
    model = Transformer(size, tokens).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, fused=True)

    def train(batch: tuple[torch.Tensor, ...]) -> None:
        with autocast(device):
            loss = model.loss(*batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return train


def measure(
    batches: Iterator[TokenBatch],
    train: Callable[[tuple[torch.Tensor, ...]], None],
    size: Size,
    device: torch.device,
    seconds: float,
) -> dict[str, Any]:
    """Trains until `seconds` have passed after WARMUP_STEPS. Nothing overlaps but what the loader does in its threads.

    Each step waits for the device, so that the time of its work is not taken for that of the next minibatch.
    """
    edges, cells, tokens, squares, flops = [], 0, 0, 0, 0
    for step in count(-WARMUP_STEPS):
        start = time.perf_counter()
        batch = next(batches)
        received = time.perf_counter()
        copied = tuple(torch.from_numpy(part).to(device) for part in batch)
        synchronise(device)
        arrived = time.perf_counter()
        train(copied)
        synchronise(device)
        if step < 0:
            continue
        edges.append((start, received, arrived, time.perf_counter()))
        lengths = batch.mask.sum(axis=1, dtype=np.int64)
        cells, tokens, squares = cells + len(lengths), tokens + int(lengths.sum()), squares + int((lengths**2).sum())
        flops += size.flops_of_rows(*batch.ids.shape)
        if edges[-1][-1] - edges[0][0] >= seconds:
            break
    waits, copies, steps = np.diff(np.array(edges), axis=1).T
    return {
        "seconds": edges[-1][-1] - edges[0][0],
        "steps": len(edges),
        "cells": cells,
        "tokens": tokens,
        "waiting_s": float(waits.sum()),
        **_spread("wait", waits),
        **_spread("copy", copies),
        **_spread("step", steps),
        "flops": flops,
        "token_flops": size.flops(tokens, squares),
    }


def _spread(name: str, seconds: np.ndarray) -> dict[str, float]:
    return {f"{name}_median_s": float(np.median(seconds)), f"{name}_p90_s": float(np.percentile(seconds, 90))}


if __name__ == "__main__":
    main()
