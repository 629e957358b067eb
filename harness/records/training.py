"""Training runs: a line of training.jsonl each, and a file with the losses of each run."""

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

    seconds: of training alone, over all `minibatches`; scores: by head ("linear drug") and test set ("iid": cells
    held out of the training plates, "plate": cells of the last plate), macro_f1 over the classes that occur or are
    predicted, and accuracy.
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
    """12 hex digits that identify a run: a hash of everything that determines its result."""
    return hashlib.sha256(json.dumps([Run.schema, fingerprint, arm, seed, *settings]).encode()).hexdigest()[:12]


def curve_path(folder: Path, key: str) -> Path:
    """The file in a machine's folder for the log of a run.

    It is an npz: "losses" float32 (minibatches, heads) in nats; "heads", their names; and "plates" int16
    (minibatches,), the plate of most cells of each minibatch.
    """
    return folder / "training" / f"{key}.npz"


def curve_of(folder: Path, run: Run) -> dict[str, np.ndarray]:
    """The log of a run: see `curve_path`."""
    with np.load(curve_path(folder, run.key)) as file:
        return dict(file)
