"""Warnings about measurements: each states what happened, the likely cause and the remedy."""

from collections.abc import Sequence

import numpy as np

from harness.condition import FEWEST_FETCHES
from harness.records.measurement import Measurement

DRIFT = 0.2  # relative change from the first to the second half of the window
SPREAD = 0.1  # range of the repeats relative to their median


def of_row(m: Measurement) -> list[str]:
    """Warnings about one measurement; [] if its status is not "ok", because its `reason` explains that."""
    if m.status != "ok":
        return []
    reasons = []
    if m.fetches < FEWEST_FETCHES:
        reasons.append(f"rests on {m.fetches:.1f} fetches: chance decides much of it; measure for longer")
    if m.provenance.get("git_dirty"):
        reasons.append("made with uncommitted code: left out of published figures; commit and run again")
    if m.condition.cache != "warm" and m.resident_before is None:
        reasons.append("nobody could see whether the cache was cold: run as the owner of the files, on Linux")
    if m.reason:
        reasons.append(m.reason)
    if cool(m):
        reasons.append(f"its warm-up was {m.warmed_epochs:.0%} of an epoch, not a whole one, which takes too long")
    drift = drift_of(m)
    if abs(drift) > DRIFT:
        reasons.append(f"drifted by {drift:+.0%} within the window: a longer warm-up, or a quieter machine")
    return reasons


def drift_of(m: Measurement) -> float:
    """The relative change of the rate from the first to the second half of the window; 0 for fewer than four edges."""
    edges = np.array([[0.0, 0.0], *(m.edges or [])])
    if len(edges) < 5:
        return 0.0
    (middle_s, middle_rows), (end_s, end_rows) = edges[np.abs(edges[:, 0] - edges[-1, 0] / 2).argmin()], edges[-1]
    return (end_rows - middle_rows) / (end_s - middle_s) / (middle_rows / middle_s) - 1


def cool(m: Measurement) -> bool:
    """Whether a condition "warm" was measured before a whole epoch had passed."""
    return m.condition.cache == "warm" and m.warmed_epochs is not None and m.warmed_epochs < 1


def of_repeats(rows: Sequence[Measurement]) -> list[str]:
    """Warnings about the repeats of one condition as a whole."""
    rates = np.array([m.cells_per_s for m in rows if m.cells_per_s])
    reasons = []
    if len(rates) == 1:
        reasons.append("one repeat has no range: --repeat 3 gives it one")
    elif len(rates) > 1 and np.ptp(rates) > SPREAD * np.median(rates):
        reasons.append(
            f"repeats differ by {np.ptp(rates) / np.median(rates):.0%}: a busy machine, or too short a window"
        )
    for name in sorted({name for m in rows for name in m.provenance.get("packages", {})}):
        versions = {m.provenance["packages"].get(name) for m in rows}
        if len(versions) > 1:
            reasons.append(f"mixes versions of {name}: {', '.join(sorted(map(str, versions)))}; move the old file away")
    return reasons
