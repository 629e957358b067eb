"""What the papers measured, from results/published/."""

import pandas as pd

from harness.host import ROOT

SCDATASET = ROOT / "results" / "published" / "scdataset.csv"


def block_shuffling() -> pd.DataFrame:
    """scDataset over h5ad in one process, minibatches of 64: block_size, fetch_factor, cells_per_s, entropy_bits of
    the plates."""
    frame = pd.read_csv(SCDATASET)
    return frame[(frame["backend"] == "h5ad") & (frame["sampler"] == "block shuffling") & (frame["workers"] == 0)]
