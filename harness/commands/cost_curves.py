"""`cost-curves`: measures and draws the cost per cell of some operations, by the number of cells handled at once."""

import argparse
from pathlib import Path

from harness.commands.common import load, print_written
from harness.commands.display import console
from harness.data.dataset import Dataset
from harness.errors import UserError
from harness.machine.lock import lock
from harness.records import cost, jsonl
from harness.records.cost import Cost
from harness.run.provenance import provenance


def cost_curves(options: argparse.Namespace) -> None:
    """Measures all curves, appends a record for each of their points, and draws the latest record of each point."""
    from harness.experiments.cost_curves import measure

    out = console()
    dataset = load(options.dataset, options.labels, out)
    if dataset.x_format != "csr":
        raise UserError(f"{dataset.name} holds X as {dataset.x_format}; the cost of a cell is measured on CSR.")
    path = options.results / cost.FILE
    with lock(options.results):
        with out.status("") as status:
            costs = measure(dataset, status.update)
        facts = provenance("native", dataset)
        for (law, method, size), us_per_cell in costs.items():
            record = Cost(
                dataset=dataset.name, law=law, method=method, size=size, us_per_cell=us_per_cell, provenance=facts
            )  # fmt: skip
            jsonl.append(path, record)
        written = [path, *publish(dataset, options.results)]
    print_written(written, out)


def publish(dataset: Dataset, folder: Path) -> list[Path]:
    """Draws the latest costs of this data set that are recorded in the folder. Returns the files written."""
    from analysis.figures.cost_curves import draw
    from analysis.figures.style import save

    costs = [
        record
        for record in jsonl.read(folder / cost.FILE, Cost)
        if record.provenance.get("dataset_fingerprint") == dataset.fingerprint
    ]
    latest = {(record.law, record.method, record.size): record for record in costs}
    if not latest:
        return []
    (folder / "figures").mkdir(exist_ok=True)
    return save(draw(list(latest.values()), dataset.name), folder / "figures" / f"{dataset.name}-laws")
