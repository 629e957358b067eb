"""A loader is judged by its fastest setting in random order."""

from analysis.tables import demand
from harness.condition import Condition, Timing
from harness.records.measurement import Measurement


def row(loader: str, rows: int, **fields: object) -> Measurement:
    condition = Condition(dataset="d", loader=loader, **fields)
    return Measurement(condition=condition, timing=Timing(), repeat=0, status="ok", rows=rows, seconds=1.0, fetches=9.0)


def test_each_demand_lists_the_loaders_that_are_too_slow() -> None:
    measured = [
        row("native", 50_000),
        row("annloader", 700),
        row("native", 40_000, output="dense"),
        row("slaf", 500),
        row("slaf", 1_000, knobs=(("n_scanners", 4),)),
        row("stream", 10**6, order="stream"),
        row("reference", 10**6),
    ]
    lines = demand.markdown(measured).splitlines()
    assert len(lines) == 2 + 4
    assert lines[0].endswith("| too slow, csr | too slow, dense |")
    assert lines[2].endswith("| 640 | none of 3 | none of 1 |")
    assert lines[5].endswith("| 31,900 | `slaf`, `annloader` | none of 1 |")
