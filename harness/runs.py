"""Training runs on disk: a line each in training.jsonl, and the losses of each beside them."""

import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from harness import results

FILE, SCHEMA = "training.jsonl", 1
ARMS = ("random", "block", "stream", "stream-buffer", "block-weighted", "true-weighted")
"""The orders of scDataset's training experiments; analysis/training.py has what each is."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """What one epoch in one order, from one seed, has taught the models.

    seconds: of training alone, for so many minibatches; scores: by head ("linear drug") and test set ("iid": cells held
    out of the training plates, "plate": of the last plate), macro_f1 over the classes that are there or predicted, and
    accuracy.
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
    schema: int = SCHEMA

    @property
    def key(self) -> str:
        settings = (self.genes, self.batch_size, self.fetch_factor, self.learning_rate)
        return key_of(self.provenance["dataset_fingerprint"], self.arm, self.seed, *settings)

    def to_json(self) -> str:
        return json.dumps(asdict(self), allow_nan=False)

    @classmethod
    def from_json(cls, line: str) -> "Run":
        """Raises ValueError saying what is wrong with the line."""
        return results.of_fields(cls, line)


def key_of(fingerprint: str, arm: str, seed: int, *settings: float) -> str:
    """12 hex digits that name a run, of everything that decides it."""
    return hashlib.sha256(json.dumps([SCHEMA, fingerprint, arm, seed, *settings]).encode()).hexdigest()[:12]


def curve_path(folder: Path, key: str) -> Path:
    """Where a machine's folder keeps what a run logged: "losses" float32 (minibatches, heads) in nats, "heads" their
    names, and "plates" int16 (minibatches,), the plate of most cells of each."""
    return folder / "training" / f"{key}.npz"


def curve_of(folder: Path, run: Run) -> dict[str, np.ndarray]:
    """What a run logged: see `curve_path`."""
    with np.load(curve_path(folder, run.key)) as file:
        return dict(file)
