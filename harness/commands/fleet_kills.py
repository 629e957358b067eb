"""Draws the runs in which producers of a fleet were killed; `python -m harness.experiments.fleet` makes them."""

from pathlib import Path

from harness.data.dataset import Dataset
from harness.records import jsonl, kills
from harness.records.kills import Kills


def publish(dataset: Dataset, folder: Path) -> list[Path]:
    """Draws the latest run of each number of producers on this data set. Returns the files written."""
    from analysis.figures.kills import draw
    from analysis.figures.style import save

    latest = {
        run.producers: run
        for run in jsonl.read(folder / kills.FILE, Kills)
        if run.provenance.get("dataset_fingerprint") == dataset.fingerprint
    }
    if not latest:
        return []
    return save(draw(list(latest.values()), dataset.name), folder / "figures" / f"{dataset.name}-fleet-kills")
