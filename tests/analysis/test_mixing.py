"""Diversity of minibatches: the values expected at random agree with random draws."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.diversity import mixing
from analysis.figures import mixing as figure
from analysis.tables import summary
from harness.condition import Condition, Timing
from harness.data.dataset import Dataset
from harness.grids import Grid
from harness.records import orders
from harness.records.measurement import Measurement


@given(st.lists(st.integers(1, 60), min_size=2, max_size=6), st.integers(1, 40), st.integers(0, 5))
def test_values_expected_at_random_are_the_mean_of_random_batches(sizes: list[int], m: int, seed: int) -> None:
    labels = np.repeat(np.arange(len(sizes)), sizes)
    m = min(m, len(labels))
    rng, shares = np.random.default_rng(seed), np.array(sizes) / sum(sizes)
    drawn = [np.bincount(rng.permutation(labels)[:m], minlength=len(sizes)) for _ in range(300)]
    expected = mixing.at_random(labels, m)
    for name, values in (
        ("random_distinct", [(counts > 0).sum() for counts in drawn]),
        ("random_total_variation", [mixing.variation(counts, shares) for counts in drawn]),
    ):
        error = np.std(values) / np.sqrt(300) + 0.02  # an event of probability 0.01 may be missing
        assert expected[name] == pytest.approx(np.mean(values), abs=6 * error)


def test_every_label_of_every_recorded_order_has_a_row(tiny_set: Dataset, tmp_path: Path) -> None:
    provenance = {"dataset_fingerprint": tiny_set.fingerprint, "git_dirty": False}
    conditions = [Condition(dataset="tiny", loader=name, batch_size=16) for name in ("native", "memmap", "bionemo")]
    measured = [
        Measurement(
            condition=c, timing=Timing(), repeat=0, status="ok", rows=9, seconds=1.0, fetches=9.0, provenance=provenance
        )
        for c in conditions
    ]
    mixed_rows = np.random.default_rng(0).permutation(tiny_set.n_cells)
    orders.save(orders.path(tmp_path, conditions[0], tiny_set.fingerprint), [np.arange(16), np.arange(16, 32)], 16)
    ids = [mixed_rows[16 * i : 16 * (i + 1)] for i in range(60)]
    orders.save(orders.path(tmp_path, conditions[1], tiny_set.fingerprint), ids, 16)
    grid = Grid(name="g", title="", timing=Timing(), conditions=tuple(conditions))
    frame = summary.table(grid, tiny_set, measured, [], [], tmp_path)
    mixed = mixing.table(frame, tiny_set, tmp_path).set_index(["loader", "label"])
    assert set(mixed.index) == {(loader, label) for loader in ("native", "memmap") for label in ("plate", "drug")}
    stream = mixed.loc[("native", "plate")]
    assert (stream["entropy_bits"], stream["distinct"]) == (0, 1)
    assert stream["total_variation"] == pytest.approx(1 - 401 / 1009)
    random = mixed.loc[("memmap", "drug")]
    assert random["entropy_bits"] == pytest.approx(random["random_bits"], abs=0.1)
    assert random["distinct"] == pytest.approx(random["random_distinct"], abs=0.5)
    assert random["total_variation"] == pytest.approx(random["random_total_variation"], abs=0.05)
    assert figure.draw(mixed.reset_index(), "tiny") is None  # two loaders are too few to compare
    assert isinstance(mixing.csv(mixed.reset_index()), str)


def test_the_variation_of_missing_labels_is_unknown() -> None:
    assert np.isnan(mixing.variation(np.zeros(0, int), np.array([0.5, 0.5])))
    assert pd.isna(mixing.variation(np.array([0]), np.array([1.0])))
