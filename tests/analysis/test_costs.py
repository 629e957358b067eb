"""The model of costs: the lowest limit binds, dollars follow from prices, and a published bill from its inputs."""

from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.costs import examples, figure, measured, prices, table
from analysis.costs.measured import Rate
from analysis.costs.model import Bill, Prices, Scenario, bill, fed, feeding, fleet
from analysis.tables.claims import judge, ledger
from harness.condition import Condition, Timing
from harness.errors import UserError
from harness.machine.host import ROOT
from harness.records import conversion, jsonl
from harness.records.conversion import Conversion
from harness.records.measurement import Measurement

positive = st.floats(1e-3, 1e9)
scenarios = st.builds(
    Scenario,
    cells=positive, epochs=st.floats(0.1, 100), gpus=st.integers(1, 1000), gpu_cells_per_s=positive,
    producers=st.integers(1, 1000), producer_cells_per_s=positive, link_bytes_per_s=positive, bytes_per_cell=positive,
    connections=positive, ttfb_s=positive, cells_per_request=positive, ceiling_cells_per_s=st.none() | positive,
    stored_bytes=st.none() | positive, conversion_s=st.none() | positive,
)  # fmt: skip
price_lists = st.builds(Prices, **{f.name: st.floats(0, 100) for f in fields(Prices)})


@given(scenarios)
def test_what_binds_is_the_lowest_of_the_limits(scenario: Scenario) -> None:
    result = bill(scenario, Prices())
    assert result.cells_per_s == min(scenario.limits.values()) == scenario.limits[result.binds]
    assert result.seconds == pytest.approx(scenario.cells * scenario.epochs / result.cells_per_s)


@given(scenarios)
def test_twice_the_producers_are_never_slower(scenario: Scenario) -> None:
    seconds = bill(scenario, Prices()).seconds
    assert bill(replace(scenario, producers=2 * scenario.producers), Prices()).seconds <= seconds
    one = replace(scenario, producers=1)
    assert bill(fleet(one, 2), Prices()).seconds <= bill(one, Prices()).seconds


@given(scenarios, price_lists, st.sampled_from([f.name for f in fields(Prices)]), st.floats(0, 100))
def test_a_higher_price_is_never_a_lower_bill(scenario: Scenario, listed: Prices, name: str, more: float) -> None:
    dearer = replace(listed, **{name: getattr(listed, name) + more})
    assert bill(scenario, dearer).total_usd >= bill(scenario, listed).total_usd


@given(scenarios)
def test_a_fleet_feeds_its_gpus_and_one_fewer_would_not(scenario: Scenario) -> None:
    one = replace(scenario, producers=1, ceiling_cells_per_s=None)
    slowest = min(rate for name, rate in one.limits.items() if name != "GPUs")
    count = fed(one).producers
    demand = one.limits["GPUs"]
    assert count * slowest >= demand * (1 - 1e-9)
    assert count == 1 or (count - 1) * slowest <= demand * (1 + 1e-9)


def test_without_a_gpu_nobody_is_fed_and_nothing_changes() -> None:
    one = Scenario(cells=1, producers=1, producer_cells_per_s=5)
    assert fed(one) == one
    assert feeding(10.0, 5.0) == 2
    assert fleet(replace(one, gpus=1, gpu_cells_per_s=3), 0).limits == {"GPUs": 3}


def test_each_part_of_a_bill() -> None:
    scenario = Scenario(
        cells=3600, epochs=2, gpus=2, gpu_cells_per_s=10, producers=1, producer_cells_per_s=1, bytes_per_cell=100,
        cells_per_request=9, stored_bytes=1e9, stored_months=3, conversion_s=7200,
    )  # fmt: skip
    listed = Prices(
        gpu_usd_per_h=2, node_usd_per_h=0.5, request_usd=1e-3, egress_usd_per_byte=1e-6, storage_usd_per_byte_month=1e-9
    )
    result = bill(scenario, listed)
    assert (result.binds, result.hours, result.gpu_hours, result.node_hours) == ("producers", 2, 4, 2)
    assert (result.gpu_usd, result.node_usd, result.conversion_usd) == (8, 1, 1)
    assert result.requests_usd == pytest.approx(0.8)
    assert result.egress_usd == pytest.approx(0.72)
    assert result.storage_usd == pytest.approx(3)
    assert result.total_usd == pytest.approx(14.52)


def test_what_is_not_stated_is_not_zero() -> None:
    result = bill(Scenario(cells=1, gpus=1, gpu_cells_per_s=1), Prices(request_usd=1.0))
    unknown = ("requests_usd", "egress_usd", "storage_usd", "conversion_usd")
    assert [getattr(result, name) for name in unknown] == [None] * 4


@pytest.mark.parametrize(
    "wrong",
    [{"cells": 0}, {"cells": float("nan")}, {"gpus": -1}, {"gpus": 0}, {"link_bytes_per_s": 1.0}, {"ttfb_s": 0.1}],
    ids=str,
)
def test_a_scenario_that_cannot_be_is_refused(wrong: dict) -> None:
    with pytest.raises(ValueError, match=r"not a number|only|nothing limits"):
        Scenario(**({"cells": 1, "gpus": 1, "gpu_cells_per_s": 1} | wrong))


def test_the_post_follows_from_its_inputs() -> None:
    counted = {line.what: line.bill for line in examples.seed_004()}
    post: Bill = counted["as the post counts"]
    assert (round(post.minutes), round(post.gpu_hours, 1), round(post.total_usd, 2)) == (32, 4.3, 10.80)
    assert post.binds == "GPUs"
    assert counted["the H100 at its list price"].total_usd == pytest.approx(17.06, abs=0.005)
    paid = counted["its 16 producers are paid for"]
    assert paid.node_usd == pytest.approx(5.47, abs=0.005)
    assert paid.node_usd / paid.gpu_usd == pytest.approx(0.51, abs=0.005)
    assert counted["its 16 producers are paid for, and bind"].binds == "producers"
    mean = counted["the mean of the run"]
    assert (round(mean.cells_per_s), round(mean.gpu_hours, 1), round(mean.total_usd)) == (3983, 34.6, 86)


def test_the_documentation_shows_what_the_example_prints() -> None:
    assert examples.markdown(examples.seed_004()) in (ROOT / "docs" / "costs.md").read_text()


def test_the_ledger_counts_as_the_example_does() -> None:
    judged = {claim.id: judge.computed(**claim.law) for claim in ledger.read() if claim.kind == "law"}
    counted = {line.what: line.bill for line in examples.seed_004()}
    assert judged["slaf-32-minutes"] == counted["as the post counts"].minutes
    assert judged["slaf-11-dollars"] == counted["as the post counts"].total_usd
    assert judged["slaf-dollars-list"] == counted["the H100 at its list price"].total_usd
    assert judged["slaf-dollars-fed"] == counted["its 16 producers are paid for, and bind"].total_usd
    assert judged["slaf-dollars-mean"] == pytest.approx(counted["the mean of the run"].total_usd, rel=1e-4)
    assert judged["slaf-dollars-eight-times-one"] == counted["eight times one H100"].total_usd


def test_the_prices_are_dated_and_of_every_kind() -> None:
    dated = prices.read()
    assert {price.kind for price in dated} == set(prices.PER)
    assert prices.choose(dated, "gpu", None).usd == 2.50
    assert prices.choose(dated, "node", None).cores == 8
    listed = prices.of({kind: prices.choose(dated, kind, None) for kind in prices.PER})
    assert listed.request_usd == pytest.approx(0.4e-6)
    assert listed.storage_usd_per_byte_month == pytest.approx(0.023e-9)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "price = 1",
        "[[price]]\nid = 'a'",
        "{",
        "[[price]]\nid='a'\nkind='gpu'\nusd=-1\nas_of=2026-01-01\nsource='s'",
    ],
    ids=range(5),
)
def test_a_file_that_is_none_of_prices_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "p.toml").write_text(text)
    with pytest.raises(UserError, match=r"p\.toml is no file of prices"):
        prices.read(tmp_path / "p.toml")


def row(loader: str, rate: int, repeat: int = 0, **changed: object) -> Measurement:
    knobs = changed.pop("knobs", ())
    facts = {"utc": "2026-02", "code": "b", "dataset_fingerprint": "f", "cores": 4, "store_bytes": 10**9} | changed.pop(
        "facts", {}
    )
    return Measurement(
        condition=Condition(dataset="d", loader=loader, knobs=knobs, **changed), timing=Timing(), repeat=repeat,
        again=False, status="ok", rows=rate, seconds=1.0, fetches=9.0, provenance=facts,
    )  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two settings of two loaders, the faster of each far from random; a third loader of which no order is recorded."""
    diversity = []
    for loader, rates in {"native": (1000, 4000), "native_zarr": (2000, 9000)}.items():
        for block, (rate, short) in zip((1, 64), zip(rates, (0.01, 0.4), strict=True), strict=True):
            knobs = (("block_size", block), ("fetch_factor", 2))
            for repeat in range(3):
                jsonl.append(tmp_path / "g.jsonl", row(loader, rate + repeat - 1, repeat, cores=2, knobs=knobs))
            key = row(loader, 1, cores=2, knobs=knobs).condition.key
            for label, bits in (("plate", short), ("drug", 0.0)):
                diversity.append(
                    {"key": key, "label": label, "entropy_bits": 3 - bits, "random_bits": 3.0, "error_bits": 0.001}
                )
    jsonl.append(tmp_path / "g.jsonl", row("annloader", 100))
    jsonl.append(tmp_path / "g.jsonl", row("reference", 10**6))
    jsonl.append(tmp_path / "g.jsonl", row("native", 99, facts={"utc": "2026-01", "code": "a"}, cores=2))
    stems = tmp_path / "figures"
    stems.mkdir()
    pd.DataFrame(diversity).to_csv(stems / "d-g-diversity.csv", index=False)
    pd.DataFrame({"n_cells": [1_000_000], "values_per_cell": [1000.0]}).to_csv(stems / "d-g-table.csv", index=False)
    made = Conversion(
        dataset="d", loader="annbatch_unshuffled", store="zarr-unshuffled/1", status="ok", seconds=36.0,
        provenance={"dataset_fingerprint": "f"},
    )  # fmt: skip
    jsonl.append(tmp_path / conversion.FILE, made)
    return tmp_path


def test_the_rate_of_a_loader_is_that_of_its_best_diverse_setting(folder: Path) -> None:
    dataset, rates = measured.rates(folder, "g")
    assert dataset == "d"
    assert [(rate.loader, rate.cells_per_s, rate.admitted) for rate in rates] == [
        ("native_zarr", 2000, True), ("native", 1000, True), ("annloader", 100, False),
    ]  # fmt: skip
    assert [rate.short_bits for rate in rates] == [pytest.approx(0.01), pytest.approx(0.01), None]
    assert [(rate.cores, rate.repeats, rate.convert_s) for rate in rates] == [(2, 3, 36.0), (2, 3, 0.0), (4, 1, 0.0)]
    assert not measured.reads_bucket(folder, "g")
    for wrong in (("h", None), ("g", "other")):
        with pytest.raises(UserError, match="no successful measurement"):
            measured.rates(folder, *wrong)


ONE = Scenario(cells=2e6, gpus=4, gpu_cells_per_s=2500, producers=1, producer_cells_per_s=1)


def test_the_table_scales_by_cores_and_cells(folder: Path) -> None:
    _, rates = measured.rates(folder, "g")
    frame = table.table(rates, ONE, Prices(gpu_usd_per_h=3.6, node_usd_per_h=36), node_cores=8).set_index("loader")
    zarr, h5ad = frame.loc["native_zarr"], frame.loc["native"]
    assert (zarr["node_cells_per_s"], h5ad["node_cells_per_s"], frame.loc["annloader", "node_cells_per_s"]) == (
        8000, 4000, 200,
    )  # fmt: skip
    assert (zarr["producers"], h5ad["producers"], zarr["binds"]) == (2, 3, "GPUs")
    assert zarr["alone_usd"] == pytest.approx(2e6 / 8000 / 100)
    assert zarr["usd"] == pytest.approx(200 * (4 * 1e-3 + 2 * 1e-2))
    assert zarr["gpus_fed"] == pytest.approx(3.2)
    assert (zarr["conversion_usd"], h5ad["conversion_usd"]) == (pytest.approx(0.72), 0)
    assert zarr["store_gb"] == pytest.approx(2)
    starved = table.table(rates, ONE, Prices(gpu_usd_per_h=3.6), node_cores=8, producers=1).set_index("loader")
    assert starved.loc["native", "binds"] == "producers"
    assert starved.loc["native", "usd"] > starved.loc["native_zarr", "usd"]


def test_the_tables_mark_what_is_not_known(folder: Path) -> None:
    _, rates = measured.rates(folder, "g")
    bare = [replace(rate, store_bytes=None, convert_s=None) for rate in rates]
    frame = table.table(bare, ONE, Prices(gpu_usd_per_h=1, node_usd_per_h=1), 8)
    text = table.markdown(frame)
    assert "| `annloader`¶ | defaults | – |" in text
    assert text.count("| – | – | – | – |") == 3
    node = prices.choose(prices.read(), "node", None)
    assert "2,000,000 cells" in table.assumptions(frame, ONE, node, "grid g")
    drawn = figure.draw(frame, "d", ONE)
    assert list(drawn.numbers["loader"]) == list(frame["loader"])


def test_a_rate_from_a_bucket_is_not_scaled_and_has_a_table_of_its_own() -> None:
    rate = Rate(
        loader="native", setting="defaults", cache="first", disk="", link_mbps=1000.0, ttfb_ms=30.0, cells_per_s=100.0,
        low_cells_per_s=np.nan, high_cells_per_s=np.nan, repeats=1, cores=2, short_bits=None, admitted=False,
        n_cells=100, store_bytes=None, convert_s=None,
    )  # fmt: skip
    assert table.of_node(rate, 8) == 100
    assert table.of_node(replace(rate, link_mbps=None, ttfb_ms=None), 8) == 400
    frame = table.table([rate, replace(rate, link_mbps=None, ttfb_ms=None)], ONE, Prices(), 8)
    text = table.markdown(frame)
    assert text.count("| loader |") == 2
    assert "a link of 1,000 Mbit/s, 30 ms to the first byte" in text


def test_rows_that_read_a_bucket_are_apart_from_the_others(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured, "link", lambda c: (1000.0, 30.0) if c.loader == "native" else (None, None))
    assert measured.reads_bucket(folder, "g")
    _, of_bucket = measured.rates(folder, "g", bucket=True)
    assert [(rate.loader, rate.link_mbps, rate.ttfb_ms, rate.from_bucket) for rate in of_bucket] == [
        ("native", 1000.0, 30.0, True)
    ] * 2
    _, local = measured.rates(folder, "g")
    assert [rate.loader for rate in local] == ["native_zarr", "annloader"]


def test_requests_and_bytes_of_a_bucket_are_in_the_bill() -> None:
    rate = Rate(
        loader="native", setting="(64, 128)", cache="first", disk="", link_mbps=1e3, ttfb_ms=30.0, cells_per_s=1000.0,
        low_cells_per_s=np.nan, high_cells_per_s=np.nan, repeats=1, cores=2, short_bits=None, admitted=False,
        n_cells=100, store_bytes=None, convert_s=None, bytes_per_cell=500.0, cells_per_request=20.0,
    )  # fmt: skip
    listed = Prices(node_usd_per_h=3.6, request_usd=1e-5, egress_usd_per_byte=1e-9)
    frame = table.table([rate], ONE, listed, 8)
    (row,) = frame.to_dict("records")
    assert (row["requests_usd"], row["received_gb"]) == (pytest.approx(1.0), pytest.approx(1.0))
    assert row["alone_usd"] == pytest.approx(2e6 / 1000 * 1e-3 + 1.0 + 1.0)
    assert "| of it requests | received, GB |" in table.markdown(frame)
    local = table.table([replace(rate, link_mbps=None, ttfb_ms=None, bytes_per_cell=None, cells_per_request=None)],
                        ONE, listed, 8)  # fmt: skip
    assert "of it requests" not in table.markdown(local)
    assert figure.draw(frame, "d", ONE).figure.axes[0].get_yticklabels()[0].get_text() == "native ¶"


def test_every_setting_of_a_loader_that_read_a_bucket_has_a_row(tmp_path: Path) -> None:
    for block_size in (16, 64):
        condition = Condition(
            dataset="tahoe-chunks", loader="native", cache="first", ttfb_ms=30, link_mbps=1000,
            knobs=(("block_size", block_size), ("fetch_factor", 128)),
        )  # fmt: skip
        measurement = Measurement(
            condition=condition, timing=Timing(), repeat=0, status="ok", rows=1000, seconds=1.0, fetches=9.0,
            requests=10, received_bytes=4_000_000, provenance={"cores": 2, "dataset_fingerprint": "f"},
        )  # fmt: skip
        jsonl.append(tmp_path / "b.jsonl", measurement)
    (tmp_path / "figures").mkdir()
    counted = pd.DataFrame({"n_cells": [140_000], "values_per_cell": [1000.0]})
    counted.to_csv(tmp_path / "figures" / "tahoe-chunks-b-table.csv", index=False)
    _, rates = measured.rates(tmp_path, "b", bucket=True)
    assert {rate.setting for rate in rates} == {"(16, 128)", "(64, 128)"}
    assert {(rate.disk, rate.bytes_per_cell, rate.cells_per_request) for rate in rates} == {("", 4000.0, 100.0)}
