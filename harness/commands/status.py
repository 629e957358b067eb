"""`status`: summarises a results folder, and lists doubtful measurements."""

import argparse
from collections.abc import Hashable

from harness.commands.display import console
from harness.errors import UserError
from harness.records import jsonl
from harness.records.measurement import STATUSES, Measurement
from harness.records.validate import KINDS

NAMED = 3  # conditions listed for each doubt, at most; of the others only the number is printed


def status(options: argparse.Namespace) -> None:
    """Prints, for each file of measurements, how many have each status, and all doubts about them."""
    from analysis.tables import doubts

    jsonl.existing(options.folder)
    out = console()
    paths = sorted(path for path in options.folder.rglob("*.jsonl") if path.name not in KINDS)
    if not paths:
        raise UserError(f"{options.folder} holds no results (*.jsonl).")
    for path in paths:
        rows = jsonl.read(path)
        counts = {s: sum(m.status == s for m in rows) for s in STATUSES}
        outcomes = ", ".join(f"{n} {s}" for s, n in counts.items() if n)
        out.print(f"{path}: {len(rows)} measurements ({outcomes})", style="bold", highlight=False)
        repeats: dict[Hashable, list[Measurement]] = {}
        for m in rows:
            repeats.setdefault((m.condition, m.timing, m.provenance.get("dataset_fingerprint")), []).append(m)
        conditions: dict[str, list[str]] = {}
        for (condition, _, _), group in repeats.items():
            reasons = [f"{m.status}: {m.reason}" for m in group if m.status != "ok"]
            for doubt in {*reasons, *(d for m in group for d in doubts.of_row(m)), *doubts.of_repeats(group)}:
                conditions.setdefault(doubt, []).append(f"{condition.dataset} {condition}")
        for doubt, affected in sorted(conditions.items(), key=lambda item: -len(item[1])):
            more = f"; and {len(affected) - NAMED} more" if len(affected) > NAMED else ""
            text = f"  {len(affected)} x {doubt}\n      {'; '.join(affected[:NAMED])}{more}"
            out.print(text, highlight=False, markup=False, soft_wrap=True)
