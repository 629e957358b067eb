"""The expected entropy agrees with simulations, with published and recorded measurements, and with its limits."""

import csv

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.diversity import entropy, expected
from harness.data.synthetic.cells import PLATE_ENTROPY_BITS, PLATES, shares_with_entropy
from harness.machine.host import ROOT

TAHOE = shares_with_entropy(PLATES, PLATE_ENTROPY_BITS)
# At the other settings a minibatch has one label or is practically random.
SETTINGS = [
    *((1, 1), (4, 1), (16, 1), (4, 4), (16, 4), (64, 4)),
    *((16, 16), (64, 16), (64, 64), (256, 64), (16, 256), (1024, 1024)),
]


def published() -> dict[tuple[int, int], float]:
    """Published plate entropy in bits by (block size, fetch factor): block shuffling of h5ad files without workers."""
    with (ROOT / "results" / "published" / "scdataset.csv").open() as file:
        rows = list(csv.DictReader(file))
    chosen = [r for r in rows if (r["backend"], r["sampler"], r["workers"]) == ("h5ad", "block shuffling", "0")]
    return {(int(r["block_size"]), int(r["fetch_factor"])): float(r["entropy_bits"]) for r in chosen}


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_the_expectation_agrees_with_the_published_table(setting: tuple[int, int]) -> None:
    assert abs(expected.exact(TAHOE, 64, *setting) - published()[setting]) < 0.06


@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.integers(1, 9), min_size=2, max_size=6),
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from([1, 2, 8]),
    st.integers(0, 9),
)
def test_the_expectation_is_the_mean_of_simulated_buffers_of_blocks(
    weights: list[int], b: int, f: int, seed: int
) -> None:
    p, m = np.array(weights) / sum(weights), 16
    rng = np.random.default_rng(seed)
    simulated = []
    for _ in range(400):
        buffer = rng.permutation(np.repeat(rng.choice(len(p), m * f // b, p=p), b))
        simulated.append(entropy.of_codes(buffer[:m]))
    assert expected.exact(p, m, b, f) == pytest.approx(np.mean(simulated), abs=5 * np.std(simulated) / 20 + 1e-9)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 9), min_size=2, max_size=14), st.sampled_from([4, 16, 64]), st.sampled_from([1, 4, 64]))
def test_the_expectation_has_the_known_limits_and_bounds(weights: list[int], m: int, f: int) -> None:
    p = np.array(weights) / sum(weights)
    assert expected.effective_cells(m, 1, f) == pytest.approx(m)
    assert expected.effective_cells(m, 4, 1) == pytest.approx(m / 4)
    law = [expected.exact(p, m, b, f) for b in (1, 2, 4)]
    assert law == sorted(law, reverse=True)
    lower, upper = expected.poster_bounds(p, m, 1)
    assert law[0] <= expected.label_entropy(p) < upper
    assert lower == pytest.approx(expected.first_order(p, m, 1, f))


def test_a_block_as_long_as_the_buffer_has_one_label() -> None:
    assert expected.exact(TAHOE, 64, 64, 1) == pytest.approx(0)
    assert expected.exact(TAHOE, 64, 1024, 4) == pytest.approx(0)


@pytest.mark.parametrize("f", [16, 64, 256, 1024])
def test_a_block_of_half_the_fetch_factor_has_one_and_a_half_times_the_bias_of_random_sampling(f: int) -> None:
    """The poster's guideline: b <= f / 2."""
    assert 64 / expected.effective_cells(64, f // 2 + 1, f) == pytest.approx(1.5, abs=0.02)


def test_blocks_of_one_cell_have_the_random_entropy() -> None:
    labels = np.repeat(np.arange(len(TAHOE)), np.round(TAHOE * 1e6).astype(int))
    assert expected.exact(TAHOE, 64, 1, 256) == pytest.approx(entropy.random_ideal(labels, 64), abs=2e-3)


def test_recorded_orders_have_the_expected_entropy() -> None:
    """At every setting of the committed grid the expectation is within 3 standard errors of the recorded entropy.

    The blocks of `native` follow the chunks: they have at most the requested length and at least half of it. Its blocks
    longer than the buffer are left out: such a block ends within a minibatch, which the law ignores.
    """
    frame = pd.read_csv(ROOT / "results" / "reference-2core" / "figures" / "tahoe-mini-figure2-short-diversity.csv")
    rows = frame[(frame["label"] == "plate") & frame["block_size"].notna() & frame["error_bits"].notna()]
    rows = rows[(rows["loader"] != "native") | (rows["block_size"] <= rows["batch_size"] * rows["fetch_factor"])]
    assert set(rows["loader"]) == {"native", "scdataset"}
    assert (rows["loader"].value_counts() > 20).all()
    for row in rows.itertuples():
        longest = int(row.block_size)
        shortest = max(1, longest // 2) if row.loader == "native" else longest
        lowest, highest = (expected.exact(TAHOE, row.batch_size, b, int(row.fetch_factor)) for b in (longest, shortest))
        slack = 3 * row.error_bits + 0.01
        assert lowest - slack <= row.entropy_bits <= highest + slack, row
