"""Recorded orders: the row ids of the first minibatches of an epoch, one file per condition."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from harness.condition import Condition


def path(folder: Path, condition: Condition, fingerprint: str) -> Path:
    """The file in a machine's folder for the order of a condition over the data set with this fingerprint."""
    return folder / "orders" / f"{condition.twin.key}-{fingerprint}.npz"


def save(path: Path, ids: Sequence[np.ndarray], fetch_rows: int) -> None:
    """Writes the row ids of minibatches atomically.

    The npz holds `rows` (all ids, one minibatch after another), `sizes` (of the minibatches) and `fetch_rows`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial.npz")
    sizes = np.array([len(rows) for rows in ids])
    np.savez_compressed(partial, rows=np.concatenate(ids), sizes=sizes, fetch_rows=fetch_rows)
    partial.rename(path)


def read(path: Path) -> tuple[list[np.ndarray], int]:
    """The recorded minibatches, each an int64 array of row ids, and the rows of a fetch."""
    with np.load(path) as file:
        return np.split(file["rows"], np.cumsum(file["sizes"])[:-1]), int(file["fetch_rows"])
