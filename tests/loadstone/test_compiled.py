"""Compiled loops are cached, and are recompiled after a change in any file of the package."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import loadstone

PROGRAM = "from loadstone.codecs.of_two import total; print(total(1))"
INNER = "from loadstone.codecs.compiled import compiled\n\n\n@compiled\ndef more(x):\n    return x + {}\n"
OUTER = """from loadstone.codecs.compiled import compiled
from loadstone.codecs.inner import more


@compiled
def total(x):
    return more(x)
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of the library with a compiled function that calls a compiled function of another file."""
    shutil.copytree(
        Path(loadstone.__file__).parent, tmp_path / "loadstone", ignore=shutil.ignore_patterns("__pycache__")
    )
    (tmp_path / "loadstone/codecs/of_two.py").write_text(OUTER)
    (tmp_path / "loadstone/codecs/inner.py").write_text(INNER.format(1))
    return tmp_path


def run(package: Path, **environment: str) -> tuple[str, bool]:
    """Runs PROGRAM in a new process. Returns (its standard output; whether it reported that it compiles its loops)."""
    finished = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=package, env=os.environ | environment, capture_output=True, text=True
    )
    assert finished.returncode == 0, finished.stderr
    lines = [line for line in finished.stderr.splitlines() if "compiles its loops" in line]
    assert len(lines) <= 1
    return finished.stdout.strip(), bool(lines)


def test_a_change_in_an_imported_file_causes_recompilation(package: Path) -> None:
    assert run(package) == ("2", True)
    assert run(package) == ("2", False)
    (package / "loadstone/codecs/inner.py").write_text(INNER.format(10))
    assert run(package) == ("11", True)
    assert run(package) == ("11", False)


def test_the_cache_lies_elsewhere_where_the_package_is_not_writable(package: Path) -> None:
    """A file in place of the cache folder prevents writing for root, too."""
    (package / "loadstone/codecs/__pycache__").write_text("")
    home = {"XDG_CACHE_HOME": str(package / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}
    assert run(package, **home) == ("2", True)
    assert run(package, **home) == ("2", False)
    (package / "cache").rename(package / "moved")
    (package / "cache").write_text("")
    assert run(package, **home) == ("2", False), (
        "without any writable cache it runs, and does not report a compilation that it cannot cache"
    )
