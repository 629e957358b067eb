"""Finds the Python that runs a loader, and what is installed there.

It is the Python of .venvs/LOADER, for a loader that cannot be installed together with the others, or else this Python.

    python -m harness.machine.interpreter MODULE ...

This command prints the `Environment` of the Python that runs it, as JSON. This module imports only the standard
library, so that it works in an incomplete environment too.
"""

import json
import platform
import subprocess
import sys
from dataclasses import asdict, dataclass
from functools import cache
from importlib.machinery import PathFinder
from importlib.metadata import distributions, packages_distributions
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OWN = Path(".venvs")


@dataclass(frozen=True)
class Environment:
    """One Python installation.

    python: the version of Python. packages: the version of each installed package, by lower-case name. missing: the
    requested modules that cannot be imported. owners: for each requested module, the names of the packages that provide
    its top-level module.
    """

    python: str
    packages: dict[str, str]
    missing: list[str]
    owners: dict[str, list[str]]


def own(loader: str) -> Path | None:
    """The folder of the loader's separate environment, relative to the project's root.

    None if the loader has no separate environment, or if this Python belongs to that environment.
    """
    folder = OWN / loader
    if Path(sys.prefix).resolve() == ROOT / folder or not (ROOT / folder / "bin" / "python").exists():
        return None
    return folder


def interpreter(loader: str) -> str:
    """The path of the Python executable that runs the loader and its conversion."""
    folder = own(loader)
    return str(ROOT / folder / "bin" / "python") if folder else sys.executable


def environment(loader: str, modules: tuple[str, ...]) -> Environment:
    """The environment of the Python that runs the loader. modules: for its fields `missing` and `owners`."""
    return _ask(interpreter(loader), modules) if own(loader) else _inspect(modules)


def missing(loader: str, modules: tuple[str, ...]) -> list[str]:
    """Those of `modules` that cannot be imported in the Python that runs the loader.

    If the loader runs in the Python that runs this code, this is faster than `environment`, since it looks up no
    package versions.
    """
    return _ask(interpreter(loader), modules).missing if own(loader) else _missing(modules)


@cache
def _ask(python: str, modules: tuple[str, ...]) -> Environment:
    command = [python, "-m", "harness.machine.interpreter", *modules]
    completed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return Environment(**json.loads(completed.stdout))


def _inspect(modules: tuple[str, ...]) -> Environment:
    packages, providers = _installed()
    return Environment(
        python=platform.python_version(),
        packages=packages,
        missing=_missing(modules),
        owners={module: [name.lower() for name in providers.get(module.split(".")[0], ())] for module in modules},
    )


@cache
def _installed() -> tuple[dict[str, str], dict[str, list[str]]]:
    """(version by package name, names of the packages that provide each top-level module)."""
    versions = {d.metadata["Name"].lower(): d.version for d in distributions() if d.metadata["Name"]}
    return versions, {module: sorted(set(names)) for module, names in packages_distributions().items()}


def _missing(modules: tuple[str, ...]) -> list[str]:
    return [module for module in modules if not _is_importable(module)]


def _is_importable(module: str) -> bool:
    """Whether the module exists. find_spec of a dotted name would import its parent, which may take seconds."""
    top, *names = module.split(".")
    spec = find_spec(top)
    for i, name in enumerate(names):
        if spec is None or spec.submodule_search_locations is None:
            return False
        spec = PathFinder.find_spec(".".join([top, *names[:i], name]), spec.submodule_search_locations)
    return spec is not None


if __name__ == "__main__":
    print(json.dumps(asdict(_inspect(tuple(sys.argv[1:])))))
