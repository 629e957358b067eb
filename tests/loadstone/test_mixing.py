"""The longest blocks that mix labels well enough are found from the order alone."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.diversity import entropy
from loadstone import BlockLoader, BlockShuffling, Indexed
from loadstone.sampling.mixing import bits_short, expected_at_random, longest_block
from loadstone.sampling.orders import BlockShuffled, Streamed, balanced

BATCH, FETCH = 64, 64 * 64
N = 100_000
PLATES = np.repeat(np.arange(10), N // 10)


def order_of(block_size: int) -> BlockShuffled:
    return BlockShuffled(N, FETCH, block_size, 0, 0)


@given(st.lists(st.integers(0, 40), min_size=1, max_size=8).filter(any), st.integers(1, 60))
@settings(max_examples=30)
def test_the_expectation_at_random_is_that_of_the_analysis(sizes: list[int], batch_size: int) -> None:
    codes = np.repeat(np.arange(len(sizes)), sizes)
    expected = entropy.random_ideal(codes, batch_size)
    assert expected_at_random(np.array(sizes), batch_size) == pytest.approx(expected, abs=1e-9)


def test_bits_short_are_those_of_the_minibatches_of_the_order() -> None:
    order = order_of(64)
    fetches = [order.fetch(k) for k in range(N // FETCH)]
    batches = [rows[i : i + BATCH] for rows in fetches for i in range(0, FETCH, BATCH)]
    mean, _ = entropy.mean_and_error(entropy.of_batches(batches, PLATES, BATCH), FETCH // BATCH)
    short, error = bits_short(order, PLATES, BATCH)
    assert short == pytest.approx(entropy.random_ideal(PLATES, BATCH) - mean, abs=1e-9)
    assert 0 < error < 0.05


@pytest.mark.parametrize("dtype", ["u1", "u8", "i1"])
def test_codes_of_every_integer_type_mean_the_same(dtype: str) -> None:
    codes = np.array([0, 1, 1, 2, 2, 2] * 100)
    order = BlockShuffled(len(codes), 60, 3, 0, 0)
    assert bits_short(order, codes.astype(dtype), 6) == bits_short(order, codes, 6)
    np.testing.assert_array_equal(balanced(codes.astype(dtype)), balanced(codes))


def test_single_rows_are_not_short_and_a_stream_is_short_of_everything() -> None:
    short, error = bits_short(order_of(1), PLATES, BATCH)
    assert abs(short) < 0.01 + 3 * error
    assert bits_short(Streamed(N, FETCH), PLATES, BATCH)[0] > 2.5


@pytest.mark.parametrize("within", [0.02, 0.05, 0.2])
def test_the_block_is_as_long_as_the_stated_mixing_allows(within: float) -> None:
    block = longest_block(order_of, {"plate": PLATES}, BATCH, FETCH, within)
    assert sum(bits_short(order_of(block), PLATES, BATCH)) <= within
    longer = block * 3 // 2 if block & (block - 1) == 0 else block * 4 // 3
    assert sum(bits_short(order_of(longer), PLATES, BATCH)) > within


def test_the_label_that_mixes_worst_decides_and_missing_labels_are_a_label() -> None:
    mixed = np.arange(N) % 7
    drugs = np.repeat(np.arange(500), N // 500)
    drugs[:1000] = -1
    alone = {name: longest_block(order_of, {name: codes}, BATCH, FETCH, 0.05) for name, codes in
             {"plate": PLATES, "mixed": mixed, "drug": drugs}.items()}  # fmt: skip
    assert alone["mixed"] == FETCH
    assert alone["drug"] < alone["plate"] < alone["mixed"]
    together = longest_block(order_of, {"plate": PLATES, "mixed": mixed, "drug": drugs}, BATCH, FETCH, 0.05)
    assert together == alone["drug"]


def test_a_loader_chooses_its_blocks_by_its_labels_and_without_them_by_the_fetch() -> None:
    source = Indexed(np.arange(N))
    options = {"batch_size": BATCH, "fetch_factor": FETCH // BATCH}
    assert BlockLoader(source, **options).sampler.block_size == 32
    labelled = BlockLoader(source, labels={"plate": PLATES}, **options)
    assert labelled.sampler.block_size == longest_block(order_of, {"plate": PLATES}, BATCH, FETCH, 0.05)
    explicit = BlockLoader(source, sampler=BlockShuffling(5), labels={"plate": PLATES}, **options)
    assert explicit.sampler.block_size == 5
    half = BlockLoader(source, labels={"plate": PLATES}, subset=np.arange(0, N, 2), **options)
    assert half.sampler.block_size == labelled.sampler.block_size
    source.close()


def test_delivered_minibatches_are_as_mixed_as_stated() -> None:
    """Counted from the minibatches of another epoch of another seed, by the analysis that also judges for `advise`."""
    rng = np.random.default_rng(0)
    labels = {"plate": PLATES, "drug": np.repeat(rng.permutation(500) % 95, N // 500), "line": rng.integers(0, 50, N)}
    source = Indexed(np.arange(N))
    loader = BlockLoader(source, labels=labels, batch_size=BATCH, fetch_factor=FETCH // BATCH, drop_last=True, seed=3)
    assert loader.sampler.block_size > 1
    batches = [batch.rows for batch in loader.epoch(5)]
    for codes in labels.values():
        mean, error = entropy.mean_and_error(entropy.of_batches(batches, codes, BATCH), FETCH // BATCH)
        assert entropy.random_ideal(codes, BATCH) - mean <= 0.05 + 3 * error
    source.close()


REFUSED = [{"block_size": "all"}, {"block_size": 0}, {"within": 0}, {"within": float("nan")}]


@pytest.mark.parametrize("arguments", REFUSED)
def test_other_blocks_are_refused(arguments: dict) -> None:
    with pytest.raises(ValueError, match=r"block_size|within"):
        BlockShuffling(**arguments)
