"""Costs of a cell by how many are handled at once: a line of laws.jsonl each, and the verb that measures them."""

import argparse
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from harness import results
from harness.bench import load
from harness.dataset import Dataset
from harness.display import console
from harness.errors import UserError
from harness.provenance import provenance

FILE, SCHEMA = "laws.jsonl", 1


@dataclass(frozen=True, kw_only=True)
class Cost:
    """us_per_cell: of each repeat, of `law` done by `method` to so many cells at once; of the law "ladder" the size is
    a phase's number."""

    dataset: str
    law: str
    method: str
    size: int
    us_per_cell: list[float]
    provenance: dict[str, Any] = field(default_factory=dict)
    schema: int = SCHEMA

    def to_json(self) -> str:
        return json.dumps(asdict(self), allow_nan=False)

    @classmethod
    def from_json(cls, line: str) -> "Cost":
        """Raises ValueError saying what is wrong with the line."""
        return results.of_fields(cls, line)


def laws(options: argparse.Namespace) -> None:
    """Measures them all anew, appends them, and draws the latest of each."""
    from analysis.laws import measure

    out = console()
    dataset = load(options.dataset, options.labels, out)
    if dataset.x_format != "csr":
        raise UserError(f"{dataset.name} holds X as {dataset.x_format}; what a cell costs is measured on CSR.")
    with results.lock(options.results):
        with out.status("") as shown:
            found = measure(dataset, shown.update)
        facts = provenance("native", dataset)
        for (law, method, size), costs in found.items():
            record = Cost(
                dataset=dataset.name, law=law, method=method, size=size, us_per_cell=costs, provenance=facts
            )  # fmt: skip
            results.append(options.results / FILE, record)
        written = [options.results / FILE, *publish(dataset, options.results)]
    out.print("\nWritten:", *(f"  {path}" for path in written), sep="\n", highlight=False)


def publish(dataset: Dataset, folder: Path) -> list[Path]:
    """Draws what a folder holds of this data set's costs, the latest of each."""
    from analysis import figures
    from analysis.laws import draw

    costs = [
        cost
        for cost in results.read(folder / FILE, Cost)
        if cost.provenance.get("dataset_fingerprint") == dataset.fingerprint
    ]
    latest = {(cost.law, cost.method, cost.size): cost for cost in costs}
    if not latest:
        return []
    (folder / "figures").mkdir(exist_ok=True)
    return figures.save(draw(list(latest.values()), dataset.name), folder / "figures" / f"{dataset.name}-laws")
