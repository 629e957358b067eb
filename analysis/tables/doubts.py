"""What is doubtful about a measurement: what happened, the likely cause, what to do."""

from collections.abc import Sequence

import numpy as np

from harness.records.measurement import Measurement

FEWEST_FETCHES = 5
RESIDENT = 0.5  # share of the store in memory at a cold window's end that makes it doubtful
DRIFT = 0.2  # of the window's last third against its first
OVER = 0.1  # of a store in memory, beyond what a bounded condition allows
SPREAD = 0.1  # of repeats round their median


def of_row(m: Measurement) -> list[str]:
    """Doubts about one measurement; [] for one that is not ok, whose reason says enough."""
    if m.status != "ok":
        return []
    found = []
    if m.fetches < FEWEST_FETCHES:
        found.append(f"rests on {m.fetches:.1f} fetches: chance decides much of it; measure for longer")
    if m.provenance.get("git_dirty"):
        found.append("made with uncommitted code: left out of published figures; commit and run again")
    if m.condition.cache != "warm" and m.resident_before is None:
        found.append("nobody could see whether the cache was cold: run as the owner of the files, on Linux")
    if m.reason:
        found.append(m.reason)
    if mostly_from_memory(m):
        found.append("by its end the page cache held most of the store, so it read memory as much as the disk")
    if m.condition.cache == "bounded" and (m.resident_after or 0) > m.condition.memory_fraction + OVER:
        found.append(
            f"{m.resident_after:.0%} of the store was in memory at its end: the process needed less than was set apart"
        )
    if m.condition.cache == "cold" and m.epochs:
        found.append(
            f"read the data anew {m.epochs} times: all but the first from memory; the set is small for this loader"
        )
    seconds = np.array(m.windows or [])
    third = len(seconds) // 3
    # Bursts of whole fetches make seconds uneven by themselves; drift is looked for where they are short.
    if third >= 10 and m.fetches > len(seconds):
        first, last = seconds[:third].mean(), seconds[-third:].mean()
        if abs(last - first) > DRIFT * first:
            found.append(
                f"drifted by {last / first - 1:+.0%} within the window: a longer warm-up, or a quieter machine"
            )
    return found


def mostly_from_memory(m: Measurement) -> bool:
    """Whether a cold window ended with most of the store resident: on a set smaller than memory it soon does."""
    return m.condition.cache == "cold" and (m.resident_after or 0) > RESIDENT


def of_repeats(rows: Sequence[Measurement]) -> list[str]:
    """Doubts about the repeats of one condition, taken together."""
    rates = np.array([m.cells_per_s for m in rows if m.cells_per_s])
    found = []
    if len(rates) == 1:
        found.append("one repeat has no interval: --repeat 3 gives it one")
    elif len(rates) > 1 and np.ptp(rates) > SPREAD * np.median(rates):
        found.append(f"repeats differ by {np.ptp(rates) / np.median(rates):.0%}: a busy machine, or too short a window")
    commits = {m.provenance.get("git_commit") for m in rows}
    if len(commits) > 1:
        found.append(f"mixes {len(commits)} commits of this project; move the old file away")
    for name in sorted({name for m in rows for name in m.provenance.get("packages", {})}):
        versions = {m.provenance["packages"].get(name) for m in rows}
        if len(versions) > 1:
            found.append(f"mixes versions of {name}: {', '.join(sorted(map(str, versions)))}; move the old file away")
    return found
