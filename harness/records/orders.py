"""Recorded orders: the row ids of the first minibatches of an epoch. Conditions with the same order share a file."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from harness.condition import Condition


def path(folder: Path, condition: Condition, fingerprint: str) -> Path:
    """The file for the order of a condition. folder: the results folder; fingerprint: that of the data set."""
    return folder / "orders" / f"{condition.order_key}-{fingerprint}.npz"


def save(path: Path, ids: Sequence[np.ndarray], fetch_rows: int) -> None:
    """Writes the row ids of minibatches atomically, as an npz file.

    The npz holds `rows` (all row ids, one minibatch after another), `sizes` (the number of rows of each minibatch) and
    `fetch_rows` (the number of rows of a fetch).
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial.npz")
    sizes = np.array([len(rows) for rows in ids])
    np.savez_compressed(partial, rows=np.concatenate(ids), sizes=sizes, fetch_rows=fetch_rows)
    partial.rename(path)


def read(path: Path) -> tuple[list[np.ndarray], int]:
    """(the recorded minibatches, each an int64 array of row ids; the number of rows of a fetch)."""
    with np.load(path) as file:
        return np.split(file["rows"], np.cumsum(file["sizes"])[:-1]), int(file["fetch_rows"])
