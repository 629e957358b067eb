"""The light way in stays light."""

import subprocess
import sys

HEAVY = (
    *("torch", "scdataset", "anndata", "datasets", "bionemo", "annbatch", "lamindb", "slaf", "zarr", "tiledbsoma"),
    "cellarium",
)


def test_importing_the_project_imports_no_loaders_library() -> None:
    program = (
        "import sys, harness.__main__, harness.worker, loaders, analysis.summary, analysis.text, analysis.figures\n"
        "for name in loaders.NAMES: loaders.get(name)\n"
        f"print([name for name in {HEAVY} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
