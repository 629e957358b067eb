"""Each package imports only the packages that the architecture allows; no import is circular.

Importing the project imports no loader's library, and the code that measures names no loader.
"""

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from harness.machine.host import ROOT

HEAVY = (
    *("torch", "scdataset", "anndata", "datasets", "bionemo", "annbatch", "lamindb", "slaf", "zarr", "tiledbsoma"),
    *("cellarium", "cellstream", "obstore", "ray"),
)

DESCRIBE = {"harness.condition", "harness.errors", "harness.grids"}
ALLOWED = {
    "loadstone": set(),
    "harness.errors": set(),
    "harness.condition": set(),
    "harness.machine": {"harness.errors"},
    "harness.bucket": {"harness.machine"},
    "harness.model": set(),
    "harness.data": {"harness.errors", "harness.machine", "loadstone"},
    "loaders": {"harness.condition", "harness.data", "harness.machine", "loadstone"},
    "harness.grids": {"harness.condition", "harness.data", "harness.errors", "loaders"},
    "harness.records": {"harness.condition", "harness.errors", "loaders"},
    "harness.run": {*DESCRIBE, "harness.bucket", "harness.data", "harness.machine", "harness.records", "loaders"},
    "harness.experiments": {
        *(*DESCRIBE, "harness.bucket", "harness.data", "harness.machine", "harness.model", "harness.records"),
        *("harness.run", "loaders", "loadstone", "analysis.diversity"),
    },
    "harness.suite": {
        *("harness.condition", "harness.data", "harness.machine", "harness.run", "loaders", "loadstone"),
    },
    "analysis": {
        *(*DESCRIBE, "harness.data", "harness.machine", "harness.model", "harness.records", "loaders"),
        "analysis.diversity",
    },
    "analysis.diversity": {"harness.data", "harness.records"},
    "harness.commands": {
        *(*DESCRIBE, "harness.data", "harness.machine", "harness.model", "harness.records", "harness.run"),
        *("harness.experiments", "loaders", "loadstone", "analysis", "analysis.diversity"),
    },
    "harness.__main__": {"harness.commands", "harness.data", "harness.errors", "harness.machine", "loaders"},
}
"""For each package, the other packages of the project that it may import."""
NAMED_BY = {"harness.experiments", "harness.suite", "harness.commands"}
"""Packages of the harness whose code may contain names of loaders; the others must work with any loader."""


def test_importing_the_project_imports_no_loaders_library() -> None:
    program = (
        "import sys, harness.__main__, harness.run.worker, loaders\n"
        "import analysis.tables.summary, analysis.tables.text, analysis.figures.kinds\n"
        "for name in loaders.NAMES: loaders.unavailable(name)\n"
        f"print([name for name in {HEAVY} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("package", ALLOWED)
def test_the_arrows(package: str) -> None:
    """Of every module of the package, wherever in it an import stands."""
    wrong = [
        f"{module} imports {name}"
        for module, path in modules().items()
        if package_of(module) == package
        for name in imported(module, path)
        if package_of(name) not in ALLOWED[package] | {package, None}
    ]
    assert wrong == []


def test_every_module_is_in_a_package_with_arrows() -> None:
    without = [module for module in modules() if package_of(module) is None and module != "harness"]
    assert without == []


def test_no_module_imports_itself_by_others() -> None:
    """Imports at the top of modules alone: one within a function is made when the function is called."""
    imports = {module: imported(module, path, top=True) & set(modules()) for module, path in modules().items()}
    path: list[str] = []
    done: set[str] = set()

    def visit(module: str) -> None:
        assert module not in path, " -> ".join([*path[path.index(module) :], module])
        if module in done:
            return
        path.append(module)
        for name in sorted(imports[module] - {module}):
            visit(name)
        done.add(path.pop())

    for module in modules():
        visit(module)


@pytest.mark.parametrize(
    "package", sorted(name for name in ALLOWED if name.startswith("harness") and name not in NAMED_BY)
)
def test_what_measures_knows_no_loader_by_name(package: str) -> None:
    import loaders

    names = {*loaders.NAMES} - {"stream"}  # which is an order, too
    found = [
        f"{module}: {node.value!r}"
        for module, path in modules().items()
        if package_of(module) == package
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and node.value in names
    ]
    assert found == []


@cache
def modules() -> dict[str, Path]:
    """The path of every module of the project except the tests, by dotted name."""
    paths = (path for name in ("loadstone", "harness", "loaders", "analysis") for path in (ROOT / name).rglob("*.py"))
    return {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in paths}


def package_of(module: str) -> str | None:
    """The package that contains the module, a key of ALLOWED; "tests" for a test; None for another project."""
    names = [name for name in ALLOWED if module == name or module.startswith(f"{name}.")]
    return max(names, key=len) if names else "tests" if module.split(".")[0] == "tests" else None


def imported(module: str, path: Path, top: bool = False) -> set[str]:
    """The full names of the modules that `module` imports. top: only by statements at the top level of the file."""
    tree = ast.parse(path.read_text())
    names: set[str] = set()
    for node in tree.body if top else ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            package = module if path.name == "__init__.py" else module.rpartition(".")[0]
            parents = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*parents, *([node.module] if node.module else [])])
            for alias in node.names:
                full = f"{base}.{alias.name}"
                names.add(full if full in modules() else base)
    return names
