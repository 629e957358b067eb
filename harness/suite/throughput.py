"""Benchmarks of the throughput of loaders after a warm-up, in microseconds per cell."""

from harness.condition import Condition

from .small import ROUNDS, STORES, dataset, us_per_cell

SETTINGS = {
    "random b=16 f=64": ("random", {"block_size": 16, "fetch_factor": 64}),
    "random b=16 f=256": ("random", {"block_size": 16, "fetch_factor": 256}),
    "random b=512 f=256": ("random", {"block_size": 512, "fetch_factor": 256}),
    "stream f=64": ("stream", {"fetch_factor": 64}),
    "stream f=256": ("stream", {"fetch_factor": 256}),
}


class Throughput:
    params = (list(STORES), list(SETTINGS), ["csr", "dense"])
    param_names = ("store", "setting", "output")
    timeout = 300
    version = "1"

    def setup(self, store: str, setting: str, output: str) -> None:
        order, knobs = SETTINGS[setting]
        loader = STORES[store]
        self.dataset = dataset(loader)
        self.condition = Condition(
            dataset="small", loader=loader, order=order, output=output, cache="warm", knobs=tuple(knobs.items())
        )

    def track_us_per_cell(self, store: str, setting: str, output: str) -> dict:
        return us_per_cell(self.dataset, self.condition)

    track_us_per_cell.unit = "us/cell"
    track_us_per_cell.rounds = ROUNDS


class Baselines:
    """Loaders other than ours, as a control: if these become slower too, loadstone is not the cause."""

    params = (["reference", "stream"],)
    param_names = ("loader",)
    timeout = 300
    version = "1"

    def setup(self, loader: str) -> None:
        order = "random" if loader == "reference" else "stream"
        self.dataset = dataset(loader)
        self.condition = Condition(dataset="small", loader=loader, order=order, cache="warm")

    def track_us_per_cell(self, loader: str) -> dict:
        return us_per_cell(self.dataset, self.condition)

    track_us_per_cell.unit = "us/cell"
    track_us_per_cell.rounds = ROUNDS
