"""The iterable data set of Hugging Face keeps every claim, except the one that the adapter declares broken."""

from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest

from harness.condition import OUTPUTS, Condition
from harness.data.dataset import Dataset
from harness.run import stores
from loaders.huggingface import HuggingFace
from loaders.protocol import Incompatible
from tests.conftest import skip_unless_available
from tests.loaders.test_contract import BATCH, ids, outcome, two_epochs
from tests.tiny import N

BUFFER = 100
pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")  # torch forks its workers


def condition_of(**fields: object) -> Condition:
    return Condition(
        dataset="tiny", loader="huggingface", batch_size=BATCH, knobs=(("iterable_buffer", BUFFER),), **fields
    )


@pytest.fixture(scope="module", autouse=True)
def _store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    skip_unless_available("huggingface")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stores, "STORES", tmp_path_factory.mktemp("stores"))
        yield


@pytest.mark.parametrize(("workers", "output"), [*product((0, 2), OUTPUTS)])
def test_claims_hold_or_are_declared_broken(tiny_set: Dataset, workers: int, output: str) -> None:
    condition = condition_of(workers=workers, output=output)
    broken = HuggingFace.broken(condition)
    assert set(broken) == ({"batches"} if workers else set())
    assert {claim: holds for claim, holds in outcome(tiny_set, condition).items() if holds == (claim in broken)} == {}


def test_the_buffer_mixes_neighbours_and_shards(tiny_set: Dataset) -> None:
    """Neither the stored order nor a permutation of all rows: a minibatch has rows of the few shards in the buffer."""
    epoch, _ = two_epochs(tiny_set, condition_of())
    rows = np.array(ids(epoch))
    assert (np.diff(rows) != 1).mean() > 0.9
    spread = np.mean([len(set(batch.rows * 64 // N)) for batch in epoch])
    assert 2 <= spread <= 12


def test_a_buffer_is_refused_in_sequential_order(tiny_set: Dataset) -> None:
    with pytest.raises(Incompatible, match="for the order random"):
        two_epochs(tiny_set, condition_of(order="stream"))
