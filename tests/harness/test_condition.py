import tomllib
from dataclasses import replace

import pytest

import loaders
from analysis import published
from harness import grids as grids_module
from harness.condition import Condition
from harness.errors import UserError
from harness.grids import GRIDS, expand

NAMES = list(tomllib.loads(GRIDS.read_text()))


@pytest.mark.parametrize("name", NAMES)
def test_every_grid_expands_to_distinct_conditions_of_known_knobs(name: str) -> None:
    import loaders

    grid = expand(name, "some-set")
    assert grid.conditions
    assert len({c.key for c in grid.conditions}) == len(set(grid.conditions)) == len(grid.conditions)
    for c in grid.conditions:
        assert c.loader in loaders.NAMES
        assert set(dict(c.knobs)) <= set(loaders.get(c.loader).knobs)


def test_the_grids_of_the_paper_have_its_settings() -> None:
    figure2, sweep, workers = (expand(name, "tahoe") for name in ("figure2", "sweep", "workers"))
    for grid in (figure2, sweep, workers):
        assert (grid.timing.warmup_s, grid.timing.measure_s) == (30, 120)
        assert {c.batch_size for c in grid.conditions} == {64}
    for grid, sides in ((figure2, [1, 2, 4, 8, 16, 32, 64]), (sweep, [1, 4, 16, 64, 256, 1024])):
        conditions = [c for c in grid.conditions if c.loader == "scdataset" and c.order == "random"]
        assert [(dict(c.knobs)["block_size"], dict(c.knobs)["fetch_factor"]) for c in conditions] == [
            (b, f) for b in sides for f in sides
        ]
    assert {c.workers for c in workers.conditions if c.loader == "scdataset"} == {8, 12, 16}


def test_a_key_names_the_condition_and_ignores_the_order_of_knobs() -> None:
    one = Condition(dataset="d", loader="native", knobs=(("a", 1), ("b", 2)))
    assert one == Condition(dataset="d", loader="native", knobs=(("b", 2), ("a", 1)))
    assert one.key == Condition.from_dict(one.to_dict()).key
    assert len(one.key) == 12
    others = [
        Condition(dataset="d", loader="native", **{name: value})
        for name, value in (
            ("seed", 1),
            ("order", "stream"),
            ("cores", 2),
            ("workers", 1),
            ("batch_size", 32),
            ("cache", "first"),
            ("disk", "hdd"),
            ("consumer_ms", 2.0),
            ("accelerator_ms", 60.0),
        )
    ]
    assert len({one.key, *(c.key for c in others)}) == 10


KEYS = [
    ({"cache": "cold"}, "5bbf756e7917"),
    ({"cache": "warm"}, "20705e8f8feb"),
    ({"cache": "bounded", "memory_fraction": 0.25}, "65617e70098a"),
    ({"cache": "cold", "order": "stream", "output": "dense", "knobs": {"block_size": 4}}, "905b15e7b759"),
]


def test_keys_of_records_of_the_first_edition_stay_valid() -> None:
    """Keys that were computed when a cold page cache was the default."""
    for fields, key in KEYS:
        values = {"loader": "native", "dataset": "d", "knobs": {}} | fields
        assert Condition.from_dict(values | {"key": key}).key == key


def test_a_bounded_condition_has_a_limit() -> None:
    one = Condition(dataset="d", loader="native", cache="bounded", memory_limit_bytes=10**9)
    assert one == Condition.from_dict(one.to_dict())
    assert one.key != Condition(dataset="d", loader="native", cache="bounded", memory_limit_bytes=2 * 10**9).key
    for fields in ({"cache": "bounded"}, {"memory_limit_bytes": 10**9}):
        with pytest.raises(ValueError, match="memory_limit_bytes"):
            Condition(dataset="d", loader="native", **fields)


def test_tokens_have_an_encoding_and_other_outputs_have_none() -> None:
    one = Condition(dataset="d", loader="native", output="tokens", tokens="geneformer")
    assert one == Condition.from_dict(one.to_dict())
    assert (one.form, Condition(dataset="d", loader="native").form) == ("geneformer tokens", "csr")
    assert one.key != replace(one, tokens="scgpt").key
    assert one.order_key == Condition(dataset="d", loader="native").order_key
    for fields in ({"output": "tokens"}, {"tokens": "scgpt"}, {"output": "tokens", "tokens": "words"}):
        with pytest.raises(ValueError, match="tokens"):
            Condition(dataset="d", loader="native", **fields)


def test_conditions_with_the_same_order_have_the_same_order_key() -> None:
    knobs = (("block_size", 4),)
    one = Condition(dataset="d", loader="native", knobs=knobs)
    bounded = {"cache": "bounded", "memory_limit_bytes": 10**9, "disk": "hdd"}
    fed = {"accelerator_ms": 60.0, "consumer": "busy"}
    for fields in ({"output": "dense"}, {"cache": "first"}, bounded, {"consumer_ms": 1.0}, {"processes": 2}, fed):
        assert Condition(dataset="d", loader="native", knobs=knobs, **fields).order_key == one.order_key
    for fields in ({"seed": 1}, {"order": "stream"}, {"batch_size": 8}, {"workers": 2}):
        assert Condition(dataset="d", loader="native", knobs=knobs, **fields).order_key != one.order_key


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("batch_size", 0),
        ("workers", -1),
        ("cores", 0),
        ("order", "shuffled"),
        ("seed", 1.5),
        ("disk", "tape"),
        ("consumer_ms", -1.0),
        ("consumer_ms", float("nan")),
        ("accelerator_ms", 0.0),
        ("accelerator_ms", float("inf")),
        ("consumer", "sleepy"),
        ("consumer", "busy"),
    ],
)
def test_an_impossible_value_is_refused(field: str, value: object) -> None:
    with pytest.raises(ValueError, match=field):
        Condition(dataset="d", loader="native", **{field: value})


def test_accelerators_take_from_one_warm_process_that_no_other_consumer_holds_up() -> None:
    one = Condition(dataset="d", loader="native", accelerator_ms=60.0, consumer="busy")
    assert one == Condition.from_dict(one.to_dict())
    assert one.key != replace(one, consumer="idle").key
    for fields in ({"cache": "first"}, {"processes": 2}, {"consumer_ms": 1.0}):
        with pytest.raises(ValueError, match="accelerator_ms"):
            replace(one, **fields)


def test_the_grid_of_accelerators_has_the_published_step_times() -> None:
    """Those of the grid are in the table of published numbers, whose cells a second follow from them."""
    steps = published.demand().dropna(subset="step_ms")
    grid = expand("accelerators", "d")
    assert {c.accelerator_ms for c in grid.conditions} == set(steps["step_ms"])
    assert {c.batch_size for c in grid.conditions} == set(steps["batch_size"])
    for row in steps.itertuples():
        accelerators = int(row.accelerators.split()[0])
        assert accelerators * row.batch_size / row.step_ms * 1e3 == pytest.approx(row.cells_per_s, rel=0.01)


def test_a_mistake_in_a_grid_names_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    bad = {"mine": {"title": "t", "arm": [{"loader": "native", "batch": 3}]}}
    monkeypatch.setattr(grids_module, "_grids", lambda: bad)
    with pytest.raises(UserError, match=r"table \[mine\].*batch"):
        expand("mine", "d")
    with pytest.raises(UserError, match="Did you mean 'mine'"):
        expand("mien", "d")


def test_all_is_every_loader_except_those_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loader that is added to NAMES gets a row without a change of the grid."""
    monkeypatch.setattr(loaders, "NAMES", loaders.NAMES | {"toy": "toy:Toy"})
    grids = {"mine": {"title": "t", "arm": [{"loader": "all", "without": ["stream", "slaf"]}]}}
    monkeypatch.setattr(grids_module, "_grids", lambda: grids)
    assert {c.loader for c in expand("mine", "d").conditions} == {*loaders.NAMES} - {"stream", "slaf"}
    grids["mine"]["arm"][0]["without"] = ["steam"]
    with pytest.raises(UserError, match=r"table \[mine\]: there is no loader steam to leave out"):
        expand("mine", "d")
