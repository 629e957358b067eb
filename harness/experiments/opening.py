"""Measures the time that our loader takes to open the files of a data set, or files as large as those of Tahoe-100M.

    python -m harness.experiments.opening tahoe-mini
    python -m harness.experiments.opening large FOLDER

`large` first writes 14 files into FOLDER (1.6 GB), unless they exist. Each has 7.2 million cells, and 206,000 chunks
per array. Every chunk holds only zeros, so the files can be opened, but not used for training. In both cases, the
files are read into the page cache before the time is measured.
"""

import sys
import time
import zlib
from pathlib import Path

import h5py
import numpy as np

from harness.data.catalogue import load
from harness.data.synthetic.h5chunks import GZIP_LEVEL, chunk_like_anndata
from harness.machine import pagecache
from loadstone import open_h5ad

REPEATS = 5
FILES, CELLS, COUNTS, GENES = 14, 7_200_000, 1_400, 62_710


def write_large(folder: Path) -> list[Path]:
    """Writes those of the large files that do not exist in `folder`. Returns the paths of all large files."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"plate{number}.h5ad" for number in range(1, FILES + 1)]
    for path in paths:
        if not path.exists():
            aside = path.with_suffix(".part")
            _write(aside)
            aside.rename(path)
    return paths


def _write(path: Path) -> None:
    n_counts = CELLS * COUNTS
    chunk = chunk_like_anndata(n_counts)
    with h5py.File(path, "w") as file:
        x = file.create_group("X")
        x.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": (CELLS, GENES)})
        for name, dtype in (("data", "f4"), ("indices", "i4")):
            array = x.create_dataset(
                name, shape=(n_counts,), dtype=dtype, chunks=(chunk,), compression="gzip", compression_opts=GZIP_LEVEL
            )
            packed = zlib.compress(np.zeros(chunk, dtype).tobytes(), GZIP_LEVEL)
            for start in range(0, n_counts, chunk):
                array.id.write_direct_chunk((start,), packed)
        x.create_dataset("indptr", data=np.arange(CELLS + 1, dtype=np.int64) * COUNTS, compression="gzip")
        var = file.create_group("var")
        var.attrs["_index"] = "_index"
        var["_index"] = [f"gene{gene:05d}" for gene in range(GENES)]


def seconds_to_open(paths: list[Path]) -> float:
    start = time.perf_counter()
    open_h5ad(paths).close()
    return time.perf_counter() - start


def main() -> None:
    match sys.argv[1:]:
        case ["large", folder]:
            paths = write_large(Path(folder))
        case [spec]:
            paths = list(load(spec).paths)
        case _:
            sys.exit(__doc__)
    pagecache.warm(paths)
    seconds = sorted(seconds_to_open(paths) for _ in range(REPEATS))
    print(f"{len(paths)} files opened in {np.median(seconds):.2f} s ({seconds[0]:.2f} to {seconds[-1]:.2f})")


if __name__ == "__main__":
    main()
