"""The measurements published in the papers, from results/published/."""

import pandas as pd

from harness.machine.host import ROOT

FOLDER = ROOT / "results" / "published"


def block_shuffling(backend: str = "h5ad") -> pd.DataFrame:
    """scDataset's block shuffling without worker processes, in minibatches of 64 cells.

    backend: the format of the store, "h5ad", "arrow" or "scdl". Columns: block_size, fetch_factor, cells_per_s; for
    h5ad also entropy_bits, the entropy of the plate labels in a minibatch.
    """
    frame = pd.read_csv(FOLDER / "scdataset.csv")
    return frame[(frame["backend"] == backend) & (frame["sampler"] == "block shuffling") & (frame["workers"] == 0)]


def training() -> pd.DataFrame:
    """Scores of scDataset's linear models, trained on plates 1 to 13 of Tahoe-100M and tested on plate 14.

    Columns: arm (the order of the cells in training), task, macro_f1, and sd, its standard deviation over runs.
    """
    return pd.read_csv(FOLDER / "training.csv")


def annbatch_epochs() -> pd.DataFrame:
    """Epoch times on Tahoe-100M published by annbatch's authors. Columns: loader, epoch_s."""
    frame = pd.read_csv(FOLDER / "annbatch.csv")
    return frame[frame["epoch_s"].notna()]


def conversions() -> pd.DataFrame:
    """Durations of annbatch's conversions. Columns: loader, what (as in "h5ad to zarr"), seconds, cells."""
    return pd.read_csv(FOLDER / "conversions.csv")


def laws() -> pd.DataFrame:
    """SLAF's cost per cell by the number of cells handled at once, and the throughput of its five phases.

    Columns: law, method, size, us_per_cell, cells_per_s. For the law "ladder", `size` is the index of the phase.
    """
    return pd.read_csv(FOLDER / "laws.csv")


def speedups() -> pd.DataFrame:
    """The speed-ups over random access that scDataset's authors claim.

    Columns: loader, block_size, fetch_factor, times (the speed-up), and over (the loader with random access). For the
    Arrow and SCDL stores, `loader` names this project's loader of the same store.
    """
    return pd.read_csv(FOLDER / "speedups.csv")


def baselines() -> dict[str, str]:
    """By loader of `speedups`, the loader with random access that it is compared with."""
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
    """Published training rates of models. Columns: model, accelerators, cells_per_s, step_ms, batch_size, source.

    step_ms, batch_size: the time of a step, and the cells that each accelerator takes in it; nan if not published.
    """
    return pd.read_csv(FOLDER / "model_demand.csv")
