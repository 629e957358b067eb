"""Values of claims of SLAF's posts, from its own experiments: see harness/records/slaf.py.

Each function returns the value of every repeat, and the command that would measure more.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from analysis.tables import slaf as tables
from analysis.tables.claims.ledger import Claim
from analysis.tables.summary import of_one_code
from harness.records import jsonl, slaf

PHASES = "python -m harness.experiments.slaf.phases tahoe-mini"
MIXTURE = "python -m harness.experiments.slaf.mixture tahoe-mini"


def phases(claim: Claim, folder: Path) -> tuple[np.ndarray, str]:
    """The ratio of the cells/s of phase `ours` to those of phase `theirs`."""
    rates = tables.rates_of(_of_one_data_set(jsonl.read(folder / slaf.PHASES_FILE, slaf.Phase)))
    ours, theirs = rates.get(claim.ours, {}), rates.get(claim.theirs, {})
    return np.array([ours[repeat] / theirs[repeat] for repeat in sorted(ours) if repeat in theirs]), PHASES


def operation(claim: Claim, folder: Path) -> tuple[np.ndarray, str]:
    """The ratio of the costs of `operation` with `ours` and `theirs`, each a method and a size."""
    records = _of_one_data_set(jsonl.read(folder / slaf.OPERATIONS_FILE, slaf.Operation))
    costs = {
        (record.method, record.size): record.us_per_unit for record in records if record.operation == claim.operation
    }
    sides = (costs.get(tuple(side), []) for side in (claim.ours, claim.theirs))
    return np.array([ours / theirs for ours, theirs in zip(*sides, strict=False)]), PHASES


def mixture(claim: Claim, folder: Path) -> tuple[np.ndarray, str]:
    """The share in per cent that `operation` names: "throughput", "score" (the mean of the authors' two) or a label.

    ours: fragment_cells and n_scanners.
    """
    records = _of_one_data_set(jsonl.read(folder / slaf.MIXTURE_FILE, slaf.Mixture))
    names = ("within", "across") if claim.operation == "score" else (claim.operation,)
    scores = tables.scores_of(records, **claim.ours)
    return np.array([100 * np.mean([s[name] for name in names]) for s in scores if set(names) <= set(s)]), MIXTURE


def _of_one_data_set(records: Sequence[Any]) -> list[Any]:
    """The records of committed code, the newest, and of the data set that it measured last."""
    newest = of_one_code(record for record in records if not record.provenance.get("git_dirty"))
    return [record for record in newest if record.dataset == newest[-1].dataset]


BY: dict[str, Callable[[Claim, Path], tuple[np.ndarray, str]]] = {
    "slaf phases": phases,
    "slaf operation": operation,
    "slaf mixture": mixture,
}
"""By way of measuring."""
