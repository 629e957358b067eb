"""Which Python runs a loader: this one, or that of .venvs/LOADER where the loader will not install beside the others.

    python -m harness.machine.interpreter MODULE ...

prints what that Python has. It needs the standard library alone, so that it can tell of half an environment too.
"""

import json
import platform
import subprocess
import sys
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import distributions, packages_distributions
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OWN = Path(".venvs")


@dataclass(frozen=True)
class Environment:
    """Of one Python: its version, those of its packages, and of the modules asked for the missing ones.

    owners: by module, the packages that bring its top level.
    """

    python: str
    packages: dict[str, str]
    missing: list[str]
    owners: dict[str, list[str]]


def own(loader: str) -> Path | None:
    """The loader's own environment, relative to the project; None where it has none, or this Python is of it."""
    folder = OWN / loader
    if Path(sys.prefix).resolve() == ROOT / folder or not (ROOT / folder / "bin" / "python").exists():
        return None
    return folder


def interpreter(loader: str) -> str:
    """The Python that converts for the loader and runs it."""
    folder = own(loader)
    return str(ROOT / folder / "bin" / "python") if folder else sys.executable


def environment(loader: str, modules: tuple[str, ...]) -> Environment:
    """What the Python that runs the loader has."""
    return _ask(interpreter(loader), modules) if own(loader) else _look(modules)


def missing(loader: str, modules: tuple[str, ...]) -> list[str]:
    """Those of the modules that the Python which runs the loader lacks; looks up no package's version in this one."""
    return _ask(interpreter(loader), modules).missing if own(loader) else _missing(modules)


@cache
def _ask(python: str, modules: tuple[str, ...]) -> Environment:
    command = [python, "-m", "harness.machine.interpreter", *modules]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return Environment(**json.loads(told.stdout))


def _look(modules: tuple[str, ...]) -> Environment:
    packages, brings = _installed()
    return Environment(
        python=platform.python_version(),
        packages=packages,
        missing=_missing(modules),
        owners={module: [name.lower() for name in brings.get(module.split(".")[0], ())] for module in modules},
    )


@cache
def _installed() -> tuple[dict[str, str], dict[str, list[str]]]:
    """Every package's version by its name, and the packages that bring each top-level module."""
    versions = {d.metadata["Name"].lower(): d.version for d in distributions() if d.metadata["Name"]}
    return versions, {module: sorted(set(names)) for module, names in packages_distributions().items()}


def _missing(modules: tuple[str, ...]) -> list[str]:
    return [module for module in modules if not _found(module)]


def _found(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # the package that a dotted name begins with
        return False


if __name__ == "__main__":
    print(json.dumps(asdict(_look(tuple(sys.argv[1:])))))
