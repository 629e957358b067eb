"""Benchmarks of single parts of our loader: decoding chunks, copying rows into minibatches, and sampling."""

from loaders.decoding import copied_cells_per_s, decoded_cells_per_s
from loadstone import open_h5ad
from loadstone.sampling.orders import BlockShuffled

from .small import ROUNDS, TIMING, dataset, sample

CELLS, FETCH = 10_000_000, 16_384


class Kernels:
    timeout = 300
    version = "1"

    def setup(self) -> None:
        self.source = open_h5ad(dataset().paths)

    def teardown(self) -> None:
        self.source.close()

    def track_decode_us_per_cell(self) -> dict:
        return sample(1e6 / decoded_cells_per_s(self.source, TIMING.measure_s))

    def track_scatter_us_per_cell(self) -> dict:
        return sample(1e6 / copied_cells_per_s(self.source, "csr", TIMING.measure_s))

    def track_densify_us_per_cell(self) -> dict:
        return sample(1e6 / copied_cells_per_s(self.source, "dense", TIMING.measure_s))

    track_decode_us_per_cell.unit = track_scatter_us_per_cell.unit = track_densify_us_per_cell.unit = "us/cell"
    track_decode_us_per_cell.rounds = track_scatter_us_per_cell.rounds = track_densify_us_per_cell.rounds = ROUNDS


class Sampling:
    """Draws an order of ten million cells in blocks of 16. No cells are read, so asv itself times the calls."""

    timeout = 300
    version = "1"
    rounds = ROUNDS

    def time_begin_epoch(self) -> None:
        BlockShuffled(CELLS, FETCH, 16, 0, 0)

    def time_rows_of_a_fetch(self) -> None:
        BlockShuffled(CELLS, FETCH, 16, 0, 0).fetch(0)
