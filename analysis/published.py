"""The measurements published in the papers, from results/published/."""

import pandas as pd

from harness.machine.host import ROOT

FOLDER = ROOT / "results" / "published"


def block_shuffling(backend: str = "h5ad") -> pd.DataFrame:
    """scDataset's block shuffling over "h5ad", "arrow" or "scdl" in one process, minibatches of 64.

    Columns: block_size, fetch_factor, cells_per_s; for h5ad also entropy_bits, of the plates.
    """
    frame = pd.read_csv(FOLDER / "scdataset.csv")
    return frame[(frame["backend"] == backend) & (frame["sampler"] == "block shuffling") & (frame["workers"] == 0)]


def training() -> pd.DataFrame:
    """scDataset's linear models of Tahoe-100M, tested on plate 14.

    Columns: arm, task, macro_f1 and its standard deviation over runs.
    """
    return pd.read_csv(FOLDER / "training.csv")


def annbatch_epochs() -> pd.DataFrame:
    """annbatch's epoch times on Tahoe-100M. Columns: loader, epoch_s."""
    frame = pd.read_csv(FOLDER / "annbatch.csv")
    return frame[frame["epoch_s"].notna()]


def conversions() -> pd.DataFrame:
    """annbatch's conversions to stores. Columns: loader, what, seconds, cells."""
    return pd.read_csv(FOLDER / "conversions.csv")


def laws() -> pd.DataFrame:
    """SLAF's cost of a cell by the number of cells handled at once, and its five phases (law "ladder").

    Columns: law, method, size, us_per_cell, cells_per_s.
    """
    return pd.read_csv(FOLDER / "laws.csv")


def speedups() -> pd.DataFrame:
    """The speed-ups over random access that scDataset's authors claim.

    Columns: loader (ours, if it reads the same store as theirs), block_size, fetch_factor, times, over (the loader it
    is compared with).
    """
    return pd.read_csv(FOLDER / "speedups.csv")


def baselines() -> dict[str, str]:
    """The loader with which each loader of `speedups` is compared."""
    frame = speedups()
    return dict(zip(frame["loader"], frame["over"], strict=True))


def over_workers() -> dict[int, pd.DataFrame]:
    """scDataset's Table 2, by number of worker processes.

    Columns: block_size, fetch_factor, cells_per_s, entropy_bits.
    """
    frame = pd.read_csv(FOLDER / "scdataset.csv")
    frame = frame[frame["source"].str.contains("Table 2")]
    return {int(workers): rows for workers, rows in frame.groupby("workers")}


def demand() -> pd.DataFrame:
    """Published training rates of models. Columns: model, accelerators, cells_per_s, source."""
    return pd.read_csv(FOLDER / "model_demand.csv")
