"""The frontier: the front of each loader, its best admitted setting, and the ratios of best to best."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from analysis.diversity import mixing
from analysis.figures import frontier as figure
from analysis.tables import compare, frontier, summary
from harness.condition import Condition, Timing
from harness.data.dataset import Dataset
from harness.grids import Grid
from harness.records import orders
from harness.records.measurement import Measurement

BLOCKED = {"block_size": 8, "fetch_factor": 2}
SINGLE = {"block_size": 1, "fetch_factor": 2}
RATES = {
    ("native", "blocked"): 9_000,
    ("native", "single"): 4_000,
    ("scdataset", "blocked"): 3_000,
    ("scdataset", "single"): 1_000,
    ("annloader", ""): 500,
    ("native_arrow", "single"): 2_000,
    ("huggingface", ""): 2_020,
    ("bionemo", ""): 8_000,
    ("reference", ""): 50_000,
}
FEW = "bionemo"


def conditions() -> dict[Condition, int]:
    knobs = {"blocked": BLOCKED, "single": SINGLE, "": {}}
    return {
        Condition(dataset="tiny", loader=loader, batch_size=16, knobs=tuple(knobs[kind].items())): rate
        for (loader, kind), rate in RATES.items()
    }


@pytest.fixture
def measured(tiny_set: Dataset, tmp_path: Path) -> tuple[pd.DataFrame, pd.DataFrame, dict]:
    """(table, diversity, measurements by condition) of invented measurements: only blocks are far from random."""
    rng = np.random.default_rng(0)
    measurements = []
    for condition, rate in conditions().items():
        for repeat in range(3):
            m = Measurement(
                condition=condition, timing=Timing(), repeat=repeat, again=False, status="ok",
                rows=rate * (10 + repeat), seconds=10.0, fetches=2.0 if condition.loader == FEW else 900.0,
                provenance={"dataset_fingerprint": tiny_set.fingerprint, "git_dirty": False},
            )  # fmt: skip
            measurements.append(m)
            if condition == next(iter(conditions())):
                measurements.append(replace(m, again=True, rows=round(1.02 * m.rows)))
        blocked = condition.knobs == tuple(sorted(BLOCKED.items()))
        batches = [np.arange(16) if blocked else rng.permutation(tiny_set.n_cells)[:16] for _ in range(4_000)]
        orders.save(orders.path(tmp_path, condition, tiny_set.fingerprint), batches, 16)
    grid = Grid(name="frontier", title="", timing=Timing(), conditions=tuple(conditions()))
    frame = summary.table(grid, tiny_set, measurements, [], [], tmp_path)
    return frame, mixing.table(frame, tiny_set, tmp_path), summary.rows_of(grid, tiny_set, measurements)


def test_a_point_is_on_the_front_unless_another_is_better_in_one_and_no_worse_in_the_other() -> None:
    cost = pd.Series([0.0, 0.1, 0.1, 0.5, 0.6])
    gain = pd.Series([1.0, 2.0, 1.5, 9.0, 9.0])
    assert frontier.pareto(cost, gain) == [True, True, False, True, False]


def test_the_best_setting_is_the_fastest_that_is_diverse_and_has_enough_fetches(measured: tuple) -> None:
    frame, mixed, _ = measured
    rows = frontier.settings(frame, mixed)
    assert rows["front"].all()
    chosen = frontier.best(rows).set_index("loader")["condition"]
    assert dict(chosen["native"].knobs) == SINGLE
    assert dict(chosen["scdataset"].knobs) == SINGLE
    assert FEW not in chosen.index


def test_the_best_setting_is_one_of_those_with_all_repeats(measured: tuple) -> None:
    frame, mixed, _ = measured
    rows = frontier.settings(frame, mixed)
    rows["admitted"] = True
    assert dict(frontier.best(rows).set_index("loader")["condition"]["native"].knobs) == BLOCKED
    rows.loc[rows["loader"].eq("native") & rows["cells_per_s"].gt(5_000), "repeats"] = 1
    assert dict(frontier.best(rows).set_index("loader")["condition"]["native"].knobs) == SINGLE


def test_large_buffers_are_not_admitted(measured: tuple, monkeypatch: pytest.MonkeyPatch) -> None:
    frame, mixed, _ = measured
    monkeypatch.setattr(frontier, "BUFFER_BYTES", 1)
    assert frontier.best(frontier.settings(frame, mixed)).empty


def test_the_table_has_a_row_for_each_loader_and_ratios_of_best_to_best(measured: tuple) -> None:
    text = frontier.markdown(*measured)
    files, stores, memory = (text.index(heading) for heading in frontier.GROUPS.values())
    assert files < text.index("| `native` | h5ad as it is | (1, 2) | 2 |") < stores
    assert stores < text.index("| `huggingface` | its store, `arrow/1` | defaults | 1 |") < memory
    assert memory < text.index("| `reference` | h5ad as it is | defaults | 1 |")
    assert f"| `{FEW}` | its store, `scdl/1` | none: too few fetches | 1 | – |" in text
    assert "| `native` (1, 2) / the best other on h5ad, `scdataset` (1, 2) | 4,400 | 1,100 | 4.00" in text
    assert "`huggingface` defaults | 2,200 | 2,222 | no difference (0.990 to 0.990) | 3 |" in text
    assert f"Left out, with fewer fetches: `{FEW}` defaults." in text


def test_an_unfinished_grid_says_so(measured: tuple) -> None:
    frame, mixed, rows = measured
    assert "not measured yet" not in frontier.markdown(frame, mixed, rows)
    missing = replace(next(iter(rows)), workers=4)
    assert f"1 of the grid's {len(rows) + 1} settings are not measured yet" in frontier.markdown(
        frame, mixed, {**rows, missing: []}
    )


def test_the_figure_shows_every_setting(measured: tuple) -> None:
    frame, mixed, _ = measured
    drawn = figure.draw(frame, mixed, "tiny")
    assert len(drawn.numbers) == len(RATES)
    assert figure.draw(frame[frame["loader"] == "native"], mixed, "tiny") is None


def test_loaders_look_different() -> None:
    names = ["native", "native_zarr", "annloader", "scdataset", "mapped", "memmap", "huggingface", "bionemo"]
    names += ["annbatch", "annbatch_unshuffled", "tiledbsoma", "cellarium", "slaf", "stream", "reference"]
    looks = figure._looks(pd.DataFrame({"loader": names}))
    assert len({tuple(look.items()) for look in looks.values()}) == len(names)


def test_without_an_a_a_pair_every_difference_counts() -> None:
    assert compare.spread([]) == 1.0
    assert compare.spread([0.8, 1.1]) == 1.25
