"""The provenance of a record: the versions of the packages that produced it."""

from importlib.metadata import version

import pytest

from harness.commands import doctor
from harness.data.dataset import Dataset
from harness.run.provenance import provenance
from loaders import get
from tests.conftest import skip_unless_available


@pytest.mark.parametrize(("name", "distribution"), [("slaf", "slafdb"), ("bionemo", "bionemo-scdl")])
def test_a_library_is_recorded_by_the_name_of_its_distribution(tiny_set: Dataset, name: str, distribution: str) -> None:
    skip_unless_available(name)
    packages = provenance(name, tiny_set)["packages"]
    assert packages[distribution] == version(distribution) == doctor.version(name, get(name).imports)
    assert packages["torch"] == version("torch")


def test_a_library_that_is_not_installed_is_left_out(tiny_set: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(get("memmap"), "imports", ("a_library_nobody_has", "numpy"))
    packages = provenance("memmap", tiny_set)["packages"]
    assert packages["numpy"] == version("numpy")
    assert None not in packages
    assert "a_library_nobody_has" not in packages
