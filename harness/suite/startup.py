"""Benchmarks of the time that our loader takes to open and to deliver its first minibatch, and of its peak memory."""

from dataclasses import replace

from harness.condition import Condition

from .small import ROUNDS, STORES, TIMING, dataset, measured, sample


class Startup:
    params = (list(STORES),)
    param_names = ("store",)
    timeout = 300
    version = "1"

    def setup(self, store: str) -> None:
        self.dataset = dataset(STORES[store])
        self.condition = Condition(dataset="small", loader=STORES[store], cache="warm")
        self.short_timing = replace(TIMING, warmup_s=0, measure_s=0.01)

    def track_open_ms(self, store: str) -> dict:
        """The time in milliseconds to open the 14 h5ad files, or their zarr store."""
        return sample(measured(self.dataset, self.condition, self.short_timing).open_s * 1e3)

    def track_first_batch_ms(self, store: str) -> dict:
        """The time in milliseconds from the start of opening to the arrival of the first minibatch."""
        window = measured(self.dataset, self.condition, self.short_timing)
        return sample((window.open_s + window.first_batch_s) * 1e3)

    def track_peak_mb(self, store: str) -> dict:
        return sample(measured(self.dataset, self.condition).peak_rss_bytes / 1e6)

    track_open_ms.unit = track_first_batch_ms.unit = "ms"
    track_peak_mb.unit = "MB"
    track_open_ms.rounds = track_first_batch_ms.rounds = track_peak_mb.rounds = ROUNDS
