"""Measures the time that our loader takes to open the files of a data set, with HDF5 and from an index.

    python -m harness.experiments.opening tahoe-mini

The files are read into the page cache before the time is measured.
"""

import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from harness.experiments.command import data_set
from harness.machine import pagecache
from loadstone import open_h5ad

REPEATS = 5


def seconds_to_open(paths: list[Path], index: Path | None = None) -> float:
    start = time.perf_counter()
    open_h5ad(paths, index=index).close()
    return time.perf_counter() - start


def main() -> None:
    paths = list(data_set(__doc__).paths)
    pagecache.warm(paths)
    with TemporaryDirectory() as folder:
        index = Path(folder)
        seconds_to_open(paths, index)
        for how, kept in ("with HDF5", None), ("from an index", index):
            seconds = sorted(seconds_to_open(paths, kept) for _ in range(REPEATS))
            spread = f"{seconds[0]:.2f} to {seconds[-1]:.2f}"
            print(f"{len(paths)} files opened {how}: {np.median(seconds):.2f} s ({spread})")


if __name__ == "__main__":
    main()
