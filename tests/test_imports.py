"""What imports what: the light way in stays light, and the library knows nothing of what measures it."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from harness.host import ROOT

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


SUITE = {"harness", "loaders", "analysis", "tests"}
FORBIDDEN = {"loadstone": SUITE, "loaders": {"analysis", "tests"}, "harness": {"tests"}, "analysis": {"tests"}}


@pytest.mark.parametrize("package", FORBIDDEN)
def test_the_arrows(package: str) -> None:
    """Of every module, wherever in it an import stands."""
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in sorted((ROOT / package).rglob("*.py"))
        for name in _imported(path)
        if name.split(".")[0] in FORBIDDEN[package]
    ]
    assert wrong == []


def _imported(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    return names | {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}
