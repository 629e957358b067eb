"""What the papers measured, from results/published/."""

import pandas as pd

from harness.machine.host import ROOT

FOLDER = ROOT / "results" / "published"


def block_shuffling(backend: str = "h5ad") -> pd.DataFrame:
    """scDataset over "h5ad", "arrow" or "scdl" in one process, minibatches of 64: block_size, fetch_factor,
    cells_per_s, and of h5ad alone entropy_bits of the plates."""
    frame = pd.read_csv(FOLDER / "scdataset.csv")
    return frame[(frame["backend"] == backend) & (frame["sampler"] == "block shuffling") & (frame["workers"] == 0)]


def training() -> pd.DataFrame:
    """scDataset's linear models of Tahoe-100M, tested on plate 14: arm, task, macro_f1 and its sd over runs."""
    return pd.read_csv(FOLDER / "training.csv")


def annbatch_epochs() -> pd.DataFrame:
    """annbatch's epochs of Tahoe-100M: loader, epoch_s."""
    frame = pd.read_csv(FOLDER / "annbatch.csv")
    return frame[frame["epoch_s"].notna()]


def conversions() -> pd.DataFrame:
    """annbatch's making of stores: loader, what, seconds, cells."""
    return pd.read_csv(FOLDER / "conversions.csv")


def laws() -> pd.DataFrame:
    """SLAF's costs of a cell over the number handled at once, and its five phases (law "ladder"): law, method, size,
    us_per_cell, cells_per_s."""
    return pd.read_csv(FOLDER / "laws.csv")


def speedups() -> pd.DataFrame:
    """scDataset's claims over random access: loader (ours, where it reads the store that theirs did), block_size,
    fetch_factor, times, over."""
    return pd.read_csv(FOLDER / "speedups.csv")


def baselines() -> dict[str, str]:
    """What each loader of `speedups` is compared with."""
    frame = speedups()
    return dict(zip(frame["loader"], frame["over"], strict=True))


def over_workers() -> dict[int, pd.DataFrame]:
    """scDataset's Table 2 by number of worker processes: block_size, fetch_factor, cells_per_s, entropy_bits."""
    frame = pd.read_csv(FOLDER / "scdataset.csv")
    frame = frame[frame["source"].str.contains("Table 2")]
    return {int(workers): rows for workers, rows in frame.groupby("workers")}


def demand() -> pd.DataFrame:
    """What models were published to take: model, accelerators, cells_per_s, source."""
    return pd.read_csv(FOLDER / "model_demand.csv")
