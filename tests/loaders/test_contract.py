"""Every loader in loaders.NAMES keeps the claims of loaders.protocol.CLAIMS, except those that it declares broken.

A claim that an adapter declares broken must be broken, so that a library release that fixes it is noticed.
"""

import gc
import tempfile
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import loaders
from harness.condition import ORDERS, OUTPUTS, TOKENS, Condition
from harness.data import catalogue
from harness.data.dataset import Dataset
from harness.machine import host
from harness.run import stores
from loaders.protocol import CLAIMS, UNCONVERTED, Batch, Incompatible
from loaders.tokens import encoding, open_loader
from loadstone.tokens import TokenBatch
from tests import tiny
from tests.conftest import OF_RAY, skip_unless_available
from tests.plain_tokens import binned, ranked

BATCH, BLOCK, FETCH = 16, 4, 3

DECLINES = {
    "reference": lambda c: c.workers,
    "stream": lambda c: c.workers or c.order == "random",
    **{name: lambda c: c.workers for name in loaders.NAMES if name.startswith("native")},
    "native_downloaded": lambda c: True,  # without a bucket; test_downloaded.py has one
    "ray_data": lambda c: c.workers,
    "memmap": lambda c: c.workers,
    "annbatch": lambda c: c.workers,
    "annbatch_unshuffled": lambda c: c.workers,
    "cellstream": lambda c: c.workers,
    "tiledbsoma": lambda c: c.workers and c.output == "csr",
    "slaf": lambda c: c.workers or c.order == "stream",
    **{name: lambda c: False for name in loaders.NAMES if name.startswith("scdataset")},
    **dict.fromkeys(("annloader", "huggingface", "huggingface_streaming", "bionemo"), lambda c: False),
    **dict.fromkeys(("mapped", "cellarium", "mosaic"), lambda c: False),
}
"""The conditions that each loader has to decline; a loader that declines another condition fails its tests.

A loader that is not listed may decline any condition but CSR without workers, in one of the two orders.
"""


NO_DENSE_X = (
    *("bionemo", "scdataset_bionemo", "native_bionemo", "native_zarr", "native_zarr_shuffled"),
    *("native_fleet", "ray_data"),
)


OWN_TOKENS = ("slaf",)
"""Loaders whose tokens are those of their library; test_slaf.py compares them with ours."""


def declines(dataset: Dataset, condition: Condition) -> bool:
    if condition.loader in NO_DENSE_X and dataset.x_format == "dense":
        return True
    if condition.loader in DECLINES:
        return bool(DECLINES[condition.loader](condition))
    return condition.loader in loaders.NAMES and _is_incompatible(dataset, condition)


def _is_incompatible(dataset: Dataset, condition: Condition) -> bool:
    try:
        loaders.get(condition.loader).open(dataset, store(dataset, condition.loader), condition, rows=True).close()
    except Incompatible:
        return True
    return False


@pytest.mark.parametrize("name", [name for name in loaders.NAMES if name not in DECLINES])
def test_a_loader_that_is_not_listed_honours_csr_in_one_process(tiny_set: Dataset, name: str) -> None:
    skip_unless_available(name)
    declined = [_is_incompatible(tiny_set, condition_of(name, order=order)) for order in ORDERS]
    assert not all(declined)


@pytest.fixture(scope="module", autouse=True)
def _stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Puts the stores into a temporary folder of this test module, so that each is made once for each data set."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stores, "STORES", tmp_path_factory.mktemp("stores"))
        yield


@pytest.fixture(autouse=True)
def _one_cluster(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the loaders on Ray share the cluster of this process, since one takes seconds to start."""
    name = getattr(request.node, "callspec", None) and request.node.callspec.params.get("name")
    if name in OF_RAY and not loaders.unavailable(name):
        monkeypatch.setenv("RAY_ADDRESS", request.getfixturevalue("ray_cluster"))


@pytest.fixture(scope="module", autouse=True)
def _no_wait_after_epochs() -> Iterator[None]:
    """Removes the 5 s for which Hugging Face datasets waits after an epoch from Parquet files in random order."""
    with pytest.MonkeyPatch.context() as patch:
        if find_spec("datasets"):
            patch.setattr("datasets.config.SLEEP_TIME_ON_THREADS_SHUTDOWN", 0)
        yield


@pytest.fixture(scope="module", autouse=True)
def _less_garbage() -> None:
    """Takes what lives so far out of garbage collections, of which tiledbsoma makes one in every fetch."""
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def _short_wait_for_workers() -> Iterator[None]:
    """Shortens the 5 s for which torch waits for each worker of an interrupted epoch.

    AnnLoader's workers do not end by themselves, so that torch waits for the whole time.
    """
    with pytest.MonkeyPatch.context() as patch:
        if find_spec("torch"):
            patch.setattr("torch.utils.data._utils.MP_STATUS_CHECK_INTERVAL", 0.5)
        yield


@pytest.fixture(scope="module", params=[tiny.as_dense, tiny.as_int64])
def other_set(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """The tiny set with X as a dense matrix, or as int64."""
    return catalogue.load(str(tiny.write(tmp_path_factory.mktemp("other") / "set", request.param)))


def condition_of(name: str, **fields: object) -> Condition:
    """A condition of this loader. None of the block size, fetch size and batch size divides the 1,009 cells evenly."""
    chunks = BATCH * FETCH // BLOCK
    values = {"block_size": BLOCK, "fetch_factor": FETCH, "chunk_size": BLOCK, "preload_nchunks": chunks}
    values |= {"shuffle_chunk_size": BLOCK, "io_batch_size": BATCH * 20}  # each of its fetches takes 0.25 s
    values |= {"n_scanners": FETCH, "buffer_size": BATCH * FETCH}
    knobs = {knob: value for knob, value in values.items() if knob in loaders.get(name).knobs}
    return Condition(dataset="tiny", loader=name, batch_size=BATCH, knobs=tuple(knobs.items()), **fields)


def dense(x: object) -> np.ndarray:
    return x.toarray() if sp.issparse(x) else np.asarray(x)


def store(dataset: Dataset, name: str) -> Path:
    """The folder of the loader's store, which is made on the first call, in this process instead of a worker."""
    path, adapter = stores.store_path(dataset, name), loaders.get(name)
    if adapter.store != UNCONVERTED and not path.exists():
        path.parent.mkdir(exist_ok=True)
        partial, progress = Path(tempfile.mkdtemp(dir=path.parent)), []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # as the process that converts does
            adapter.prepare(dataset, partial, progress.append)
        assert progress == sorted(progress)
        assert progress[-1] == dataset.n_cells
        assert {type(cells) for cells in progress} == {int}  # which a worker can send as JSON
        partial.rename(path)
    return path


def epochs(dataset: Dataset, condition: Condition, count: int, rows: bool = True) -> list[list[Batch]]:
    """The batches of the first `count` epochs of a newly opened loader; checks the type of x, then makes x dense."""
    loader = loaders.get(condition.loader).open(dataset, store(dataset, condition.loader), condition, rows=rows)
    read = []
    try:
        for index in range(count):
            read.append([])
            for batch in loader.epoch(index):
                if condition.output == "csr":
                    assert isinstance(batch.x, sp.csr_matrix)
                else:
                    assert isinstance(batch.x, np.ndarray) or type(batch.x).__module__ == "torch"
                assert batch.x.shape[1] == tiny.GENES
                assert str(batch.x.dtype).removeprefix("torch.") == "float32"
                assert (batch.rows is not None) == rows
                read[-1].append(Batch(dense(batch.x).copy(), batch.rows if batch.rows is None else batch.rows.copy()))
    finally:
        loader.close()
    return read


@cache
def two_epochs(dataset: Dataset, condition: Condition) -> list[list[Batch]]:
    """The first two epochs; cached, because several tests need them."""
    return epochs(dataset, condition, 2)


def ids(batches: list[Batch]) -> list[int]:
    return np.concatenate([batch.rows for batch in batches]).tolist()


def outcome(dataset: Dataset, condition: Condition) -> dict[str, bool]:
    """For each claim of loaders.protocol.CLAIMS, whether the loader keeps it under the condition."""
    try:
        once = two_epochs(dataset, condition)
    except Exception as error:
        raised_in = traceback.extract_tb(error.__traceback__)[-1].filename
        if isinstance(error, Incompatible) or Path(raised_in).is_relative_to(host.ROOT / "loaders"):
            raise  # the adapter declines, or has an error of its own
        return {"delivers": False}  # the library raised
    again = epochs(dataset, condition, 2)
    truth = tiny.truth()
    return {
        "delivers": True,
        "exact": all(sorted(ids(epoch)) == list(range(tiny.N)) for epoch in once),
        "rows": all(np.array_equal(batch.x, truth[batch.rows]) for epoch in once for batch in epoch),
        "seeded": [ids(epoch) for epoch in once] == [ids(epoch) for epoch in again],
        "reshuffled": condition.order == "stream" or ids(once[0]) != ids(once[1]),
        "batches": all(
            sum(len(b.rows) != BATCH for b in epoch) <= 1 and max(len(b.rows) for b in epoch) == BATCH for epoch in once
        ),
    }


def case(name: str, order: str, workers: int, output: str) -> object:
    """A pytest parameter set. It is marked slow for tiledbsoma with workers and dense output.

    tiledbsoma's worker processes recompile its kernels and collect garbage at every read.
    """
    slow = name == "tiledbsoma" and workers and output == "dense"
    return pytest.param(name, order, workers, output, marks=[pytest.mark.slow] if slow else [])


@pytest.mark.parametrize(
    ("name", "order", "workers", "output"), [case(*each) for each in product(loaders.NAMES, ORDERS, (0, 2), OUTPUTS)]
)
def test_claims_hold_or_are_declared_broken(
    tiny_set: Dataset, name: str, order: str, workers: int, output: str
) -> None:
    skip_unless_available(name)
    condition = condition_of(name, order=order, workers=workers, output=output)
    broken = loaders.get(name).broken(condition)
    assert set(broken) <= set(CLAIMS)
    if declines(tiny_set, condition):
        with pytest.raises(Incompatible):
            epochs(tiny_set, condition, 1)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        claims = outcome(tiny_set, condition)
        if "seeded" in broken:  # then it may keep by chance what it breaks as a rule
            for _ in range(4):
                if not any(claims.get(claim) for claim in broken):
                    break
                two_epochs.cache_clear()
                claims = {
                    claim: holds and claims.get(claim, False) for claim, holds in outcome(tiny_set, condition).items()
                }
    assert {claim: holds for claim, holds in claims.items() if holds == (claim in broken)} == {}


@pytest.mark.parametrize("name", loaders.NAMES)
def test_claims_hold_for_other_forms_of_x_or_are_declared_broken(other_set: Dataset, name: str) -> None:
    skip_unless_available(name)
    condition = condition_of(name)
    if declines(other_set, condition):
        with pytest.raises(Incompatible):
            epochs(other_set, condition, 1)
        return
    broken = loaders.get(name).broken(condition)
    claims = outcome(other_set, condition)
    assert {claim: holds for claim, holds in claims.items() if holds == (claim in broken)} == {}


@pytest.mark.parametrize(("name", "order"), [*product(loaders.NAMES, ORDERS)])
def test_requesting_row_ids_changes_nothing_else(tiny_set: Dataset, name: str, order: str) -> None:
    skip_unless_available(name)
    condition = condition_of(name, order=order)
    if declines(tiny_set, condition):
        pytest.skip("it declines this order")
    (with_ids, _), (without_ids,) = two_epochs(tiny_set, condition), epochs(tiny_set, condition, 1, rows=False)
    if "seeded" in loaders.get(name).broken(condition):
        # The two orders differ: only the sets of cells can be compared.
        one, other = (sorted(row.tobytes() for batch in epoch for row in batch.x) for epoch in (with_ids, without_ids))
        assert one == other
        return
    assert len(with_ids) == len(without_ids)
    for one, other in zip(with_ids, without_ids, strict=True):
        np.testing.assert_array_equal(one.x, other.x)


@cache
def oracle(name: str) -> TokenBatch:
    """The tokens of all cells of the tiny set. name: of the encoding."""
    form = encoding(condition_of("native", output="tokens", tokens=name), tiny.GENES)
    rows = [{"geneformer": ranked, "scgpt": binned}[name](counts, form) for counts in tiny.truth()]
    ids, mask, values = (np.array(part) for part in zip(*rows, strict=True))
    return TokenBatch(ids, mask, None if name == "geneformer" else values)


@pytest.mark.parametrize(("name", "form"), [*product(loaders.NAMES, TOKENS)])
def test_tokens_are_those_of_the_cells_in_the_same_order(tiny_set: Dataset, name: str, form: str) -> None:
    """One epoch: the claims on its cells hold as for CSR, since the order is the same."""
    skip_unless_available(name)
    csr = condition_of(name, order="stream" if name == "stream" else "random")
    condition = replace(csr, output="tokens", tokens=form)
    if declines(tiny_set, csr):
        with pytest.raises(Incompatible):
            open_loader(loaders.get(name), tiny_set, store(tiny_set, name), condition, rows=True)
        return
    loader, rows, expected = (
        open_loader(loaders.get(name), tiny_set, store(tiny_set, name), condition, rows=True),
        [],
        oracle(form),
    )
    try:
        for batch in loader.epoch(0):
            rows.append(batch.rows.copy())
            assert (batch.x.ids.dtype, batch.x.mask.dtype) == (np.int64, np.bool_)
            assert batch.x.ids.shape == batch.x.mask.shape
            assert len(batch.x.ids) == len(batch.rows)
            assert (batch.x.values is None) == (form == "geneformer")
            for part, of_all in zip(batch.x, expected, strict=True) if name not in OWN_TOKENS else ():
                if of_all is not None:
                    np.testing.assert_array_equal(part, of_all[batch.rows])
    finally:
        loader.close()
    broken = loaders.get(name).broken(condition)
    assert broken == loaders.get(name).broken(csr)
    if "seeded" in broken:
        assert sorted(np.concatenate(rows)) == sorted(ids(two_epochs(tiny_set, csr)[0]))
    else:
        assert [*map(list, rows)] == [list(b.rows) for b in two_epochs(tiny_set, csr)[0]]


@pytest.mark.parametrize(("name", "order"), [*product(loaders.NAMES, ORDERS)])
def test_the_order_does_not_depend_on_the_output(tiny_set: Dataset, name: str, order: str) -> None:
    """CSR and dense minibatches hold the same cells, so the order is recorded for one of the two only."""
    skip_unless_available(name)
    conditions = [condition_of(name, order=order, output=output) for output in OUTPUTS]
    if any(declines(tiny_set, condition) for condition in conditions):
        pytest.skip("it declines this order")
    if "seeded" in loaders.get(name).broken(conditions[0]):
        pytest.skip("its order is not reproducible")
    (one, _), (other, _) = (two_epochs(tiny_set, condition) for condition in conditions)
    assert ids(one) == ids(other)


@pytest.mark.parametrize("name", loaders.NAMES)
def test_sequential_order_is_the_order_of_the_store(tiny_set: Dataset, name: str) -> None:
    """That is the order of the files, unless the store was shuffled when it was written."""
    skip_unless_available(name)
    condition = condition_of(name, order="stream")
    if declines(tiny_set, condition):
        pytest.skip("it declines sequential order")
    first, second = two_epochs(tiny_set, condition)
    assert ids(first) == ids(second)
    assert (ids(first) == list(range(tiny.N))) == (name not in ("annbatch", "native_zarr_shuffled", "cellarium"))


@pytest.mark.parametrize("name", loaders.NAMES)
def test_another_seed_gives_another_order(tiny_set: Dataset, name: str) -> None:
    skip_unless_available(name)
    if declines(tiny_set, condition_of(name)):
        pytest.skip("it declines random order")
    (one, _), (other,) = two_epochs(tiny_set, condition_of(name)), epochs(tiny_set, condition_of(name, seed=1), 1)
    assert ids(one) != ids(other)


@pytest.mark.parametrize("name", [name for name in loaders.NAMES if "shuffle_buffer" in loaders.get(name).knobs])
def test_a_shuffle_buffer_moves_rows_only_within_the_buffer(tiny_set: Dataset, name: str) -> None:
    skip_unless_available(name)
    condition = condition_of(name, order="stream")
    condition = replace(condition, knobs=(*condition.knobs, ("shuffle_buffer", True)))
    (epoch,) = epochs(tiny_set, condition, 1)
    rows, buffer = np.array(ids(epoch)), BATCH * FETCH
    assert sorted(rows) == list(range(tiny.N))
    assert (rows != np.arange(tiny.N)).any()
    assert (rows // buffer == np.arange(tiny.N) // buffer).all()
