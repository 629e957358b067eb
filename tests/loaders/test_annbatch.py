"""annbatch's buffer on the GPU needs cupy and CUDA; where there is none, the condition has its reason."""

from importlib.util import find_spec
from pathlib import Path

import pytest

import loaders
from harness.condition import Condition
from harness.data.dataset import Dataset
from loaders.protocol import Incompatible


@pytest.mark.skipif(find_spec("cupy") is not None, reason="cupy is installed")
def test_without_cupy_nothing_is_preloaded_to_a_gpu(tiny_set: Dataset, tmp_path: Path) -> None:
    condition = Condition(dataset="tiny", loader="annbatch", knobs=(("preload_to_gpu", True),))
    with pytest.raises(Incompatible, match="preload_to_gpu needs cupy"):
        loaders.get("annbatch").open(tiny_set, tmp_path, condition, rows=False)
