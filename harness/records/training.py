"""Training runs: each has a line of training.jsonl, and a file with its losses."""

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

FILE = "training.jsonl"
ARMS = ("random", "block", "stream", "stream-buffer", "block-weighted", "true-weighted")
"""The orders of scDataset's training experiments; harness/experiments/training.py defines each."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One epoch of training in one order, from one seed.

    arm: the order, one of ARMS. genes: the number of genes that the models see.
    seconds: the time of training alone, for all `minibatches` of the epoch.
    scores: by head (model and task, as in "linear drug"), test set and score. The test sets are "iid" (cells held out
    of the training plates) and "plate" (cells of the last plate). The scores are "macro_f1" (over the classes that
    occur or are predicted) and "accuracy".
    """

    dataset: str
    arm: str
    seed: int
    genes: int
    batch_size: int
    fetch_factor: int
    learning_rate: float
    minibatches: int
    seconds: float
    scores: dict[str, dict[str, dict[str, float]]]
    provenance: dict[str, Any] = field(default_factory=dict)
    schema: int = 1

    @property
    def key(self) -> str:
        settings = (self.genes, self.batch_size, self.fetch_factor, self.learning_rate)
        return key_of(self.provenance["dataset_fingerprint"], self.arm, self.seed, *settings)


def key_of(fingerprint: str, arm: str, seed: int, *settings: float) -> str:
    """12 hex digits that identify a run: a hash of the arguments, which determine its result.

    fingerprint: that of the data set. settings: genes, batch size, fetch factor and learning rate, in this order.
    """
    return hashlib.sha256(json.dumps([Run.schema, fingerprint, arm, seed, *settings]).encode()).hexdigest()[:12]


def curve_path(folder: Path, key: str) -> Path:
    """The file for the log of the run with this key. folder: the results folder.

    The log is an npz with three arrays: "losses", float32 (minibatches, heads), in nats; "heads", the names of the
    heads; and "plates", int16 (minibatches,), the most frequent plate of each minibatch.
    """
    return folder / "training" / f"{key}.npz"


def curve_of(folder: Path, run: Run) -> dict[str, np.ndarray]:
    """The arrays of a run's log by name, as listed at `curve_path`."""
    with np.load(curve_path(folder, run.key)) as file:
        return dict(file)
