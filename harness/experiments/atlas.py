"""Measures our loader on 100 million cells: opening, an epoch's order, fetches, resumption and two ranks.

    python -m harness.experiments.atlas FOLDER

Two sets are written into FOLDER first (4.7 GB), unless they exist: 14 files of 7.14 million cells, and for comparison
14 files of 71,429 cells. Real are the numbers of files, cells, and chunks (102,000 per array and file, of 70 cells
each), gzip, and the place of every byte. Not real are the counts: a cell has 70 instead of 1,400, and the chunks of an
array are all the same. Every step runs in a fresh process, with the files in the page cache.
"""

import resource
import sys
import time
import zlib
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from itertools import count, islice
from multiprocessing import get_context
from pathlib import Path
from shutil import rmtree

import h5py
import numpy as np
import psutil

from harness.data.synthetic.h5chunks import GZIP_LEVEL
from harness.machine import pagecache
from loadstone import BlockLoader, BlockShuffling, open_h5ad

FILES, GENES = 14, 62_710
CELLS = {"100 million": 7_142_858, "1 million": 71_429}  # per file
COUNTS = 70  # per cell
CHUNK_CELLS = 70
FETCHES = 1_000
SETTINGS = (16, 64), (64, 256)
WELLS, DRUGS = 95, 380  # wells per plate, which is a file, and the drugs in them, as in Tahoe-100M
FETCH_FACTOR = 611  # that 1 GB allows for cells of 1,400 counts
REPEATS = 3


def counts_of_a_chunk() -> dict[str, np.ndarray]:
    """The values and the gene indices of CHUNK_CELLS cells, float32 and int32 (CHUNK_CELLS, COUNTS)."""
    rng = np.random.default_rng(0)
    genes = np.sort(rng.choice(GENES, COUNTS, replace=False)).astype(np.int32)
    return {
        "data": rng.geometric(0.5, (CHUNK_CELLS, COUNTS)).astype(np.float32),
        "indices": np.broadcast_to(genes, (CHUNK_CELLS, COUNTS)),
    }


def written(folder: Path, cells: int) -> list[Path]:
    """The paths of the files with so many cells each. Writes those that do not exist."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"plate{number}.h5ad" for number in range(1, FILES + 1)]
    for path in paths:
        if not path.exists():
            print(f"writing {path.name} ({cells:,} cells)", file=sys.stderr)
            aside = path.with_suffix(".part")
            _write(aside, cells)
            aside.rename(path)
    return paths


def _write(path: Path, cells: int) -> None:
    n, chunk = cells * COUNTS, CHUNK_CELLS * COUNTS
    with h5py.File(path, "w") as file:
        x = file.create_group("X")
        x.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": (cells, GENES)})
        for name, values in counts_of_a_chunk().items():
            array = x.create_dataset(
                name, shape=(n,), dtype=values.dtype, chunks=(chunk,), compression="gzip", compression_opts=GZIP_LEVEL
            )
            packed = zlib.compress(np.ascontiguousarray(values).tobytes(), GZIP_LEVEL)
            for start in range(0, n, chunk):
                array.id.write_direct_chunk((start,), packed)
        x.create_dataset("indptr", data=np.arange(cells + 1, dtype=np.int64) * COUNTS, compression="gzip")
        var = file.create_group("var")
        var.attrs["_index"] = "_index"
        var["_index"] = [f"gene{gene:05d}" for gene in range(GENES)]


def opening(paths: list[Path], index: Path) -> str:
    """How long the files take to open, and how much memory that needs beyond the imports."""
    before = _resident()
    _source, seconds = _timed(lambda: open_h5ad(paths, index=index))
    return f"{seconds:.1f} s, {_peak() - before:,.0f} MB at most, {_resident() - before:,.0f} MB after it"


def order(paths: list[Path], index: Path, setting: tuple[int, int]) -> str:
    """How long the order of an epoch takes, and the first minibatch after it."""
    before = _resident()
    with closing(_loader(paths, index, setting)) as loader:
        n, seconds = _timed(lambda: len(loader))
        _, first = _timed(lambda: next(iter(loader)))
        return f"{seconds:.2f} s, {n:,} minibatches; the first {first:.2f} s later; {_peak() - before:,.0f} MB at most"


def choice(paths: list[Path], index: Path) -> str:
    """How long the choice of a block takes for two labels: the plate, and the drug of a well."""
    before = _resident()
    with closing(open_h5ad(paths, index=index)) as source:
        n = len(source) // FILES
        well = (np.arange(n) * WELLS // n).astype(np.int16)  # of each cell in its file
        labels = {
            "plate": np.repeat(np.arange(FILES, dtype=np.int8), n),
            "drug": np.concatenate([(well + np.int16(plate * WELLS)) % np.int16(DRUGS) for plate in range(FILES)]),
        }
        loader, seconds = _timed(lambda: BlockLoader(source, labels=labels, fetch_factor=FETCH_FACTOR))
        peak = f"{_peak() - before:,.0f} MB at most, with the labels"
        return f"{seconds:.2f} s, a block of {loader.sampler.block_size}; {peak}"


def resumption(paths: list[Path], index: Path, setting: tuple[int, int]) -> str:
    """How long another loader takes to deliver what comes next in the middle of an epoch."""
    with closing(_loader(paths, index, setting)) as loader:
        middle = len(loader) // 2
        loader.load_state_dict(loader.state_dict() | {"delivered": middle - 100})
        batches = iter(loader)
        for _ in range(100):
            next(batches)
        state, expected = loader.state_dict(), next(batches).rows
    with closing(_loader(paths, index, setting)) as loader:
        loader.load_state_dict(state)
        batch, seconds = _timed(lambda: next(iter(loader)))
    np.testing.assert_array_equal(batch.rows, expected)
    return f"minibatch {state['delivered']:,} after {seconds:.2f} s"


def ranks(paths: list[Path], index: Path, setting: tuple[int, int]) -> str:
    """How long the second of two ranks takes for its order and its first minibatch."""
    rows = []
    for rank in range(2):
        with closing(_loader(paths, index, setting, rank=rank, ranks=2)) as loader:
            _, seconds = _timed(lambda: next(iter(loader)))
            rows.append(np.concatenate([batch.rows for batch, _ in zip(loader, range(1_000), strict=False)]))
    if len(np.unique(np.concatenate(rows))) < sum(map(len, rows)):
        raise ValueError("both ranks delivered the same row")
    return f"{seconds:.2f} s"


def rate(paths: list[Path], index: Path, setting: tuple[int, int]) -> float:
    """Cells/s in FETCHES fetches, after a tenth as many that are not counted."""
    chunk, cells, start = counts_of_a_chunk(), 0, 0.0
    with closing(_loader(paths, index, setting)) as loader:
        per_file = len(loader.source) // FILES
        warm, n = int(0.1 * FETCHES * setting[1]), int(1.1 * FETCHES * setting[1])
        endless = (batch for _ in count() for batch in loader)
        for k, batch in enumerate(islice(endless, n)):
            if k == warm:
                start, cells = time.perf_counter(), 0
            cells += len(batch.rows)
            if k % 1_000 == 0:  # these are the rows that they should be
                np.testing.assert_array_equal(batch.x.data, chunk["data"][batch.rows % per_file % CHUNK_CELLS].ravel())
        return cells / (time.perf_counter() - start)


def _loader(paths: list[Path], index: Path, setting: tuple[int, int], **share: int) -> BlockLoader:
    block_size, fetch_factor = setting
    return BlockLoader(
        open_h5ad(paths, index=index), sampler=BlockShuffling(block_size), fetch_factor=fetch_factor, **share
    )


def _timed[T](call: Callable[[], T]) -> tuple[T, float]:
    start = time.perf_counter()
    result = call()
    return result, time.perf_counter() - start


def _resident() -> float:
    """The resident memory of this process in MB."""
    return psutil.Process().memory_info().rss / 1e6


def _peak() -> float:
    """The largest resident memory that this process has had, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = Path(sys.argv[1])
    sets = {name: written(folder / name.replace(" ", "-"), cells) for name, cells in CELLS.items()}
    rmtree(folder / "index", ignore_errors=True)

    def step[T](function: Callable[..., T], name: str, *arguments: object) -> T:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
            return process.submit(function, sets[name], folder / "index" / name, *arguments).result()

    for paths in sets.values():
        pagecache.warm(paths)
    for name in sets:
        print(f"{name}, opened: {step(opening, name)}")
        print(f"{name}, opened again, from the index: {step(opening, name)}")
        print(f"{name}, block chosen at a fetch factor of {FETCH_FACTOR}: {step(choice, name)}")
        for setting in SETTINGS:
            for function in (order, resumption, ranks):
                print(f"{name}, {setting}, {function.__name__}: {step(function, name, setting)}")
    for setting in SETTINGS:
        rates = {name: [] for name in sets}
        for _ in range(REPEATS):
            for name in sets:
                rates[name].append(step(rate, name, setting))
        many, few = rates.values()
        ratios = sorted(a / b for a, b in zip(many, few, strict=True))
        print(
            f"{setting}: {np.median(many):,.0f} cells/s of 100 million, {np.median(few):,.0f} of 1 million: "
            f"{np.median(ratios):.2f} times ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        )


if __name__ == "__main__":
    main()
