"""What was compiled is used again, and is made anew when any file of the package has changed."""

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
    """A copy of the library, with a function that is compiled into another file's."""
    shutil.copytree(
        Path(loadstone.__file__).parent, tmp_path / "loadstone", ignore=shutil.ignore_patterns("__pycache__")
    )
    (tmp_path / "loadstone/codecs/of_two.py").write_text(OUTER)
    (tmp_path / "loadstone/codecs/inner.py").write_text(INNER.format(1))
    return tmp_path


def run(package: Path, **environment: str) -> tuple[str, bool]:
    """What the program prints, and whether it says that it compiles."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=package, env=os.environ | environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stderr.splitlines() if "compiles its loops" in line]
    assert len(lines) <= 1
    return done.stdout.strip(), bool(lines)


def test_a_change_in_another_file_is_not_missed(package: Path) -> None:
    assert run(package) == ("2", True)
    assert run(package) == ("2", False)
    (package / "loadstone/codecs/inner.py").write_text(INNER.format(10))
    assert run(package) == ("11", True)
    assert run(package) == ("11", False)


def test_it_is_kept_elsewhere_where_the_code_cannot_be_written(package: Path) -> None:
    """A file in the place of its folder stops root, too."""
    (package / "loadstone/codecs/__pycache__").write_text("")
    home = {"XDG_CACHE_HOME": str(package / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}
    assert run(package, **home) == ("2", True)
    assert run(package, **home) == ("2", False)
    (package / "cache").rename(package / "moved")
    (package / "cache").write_text("")
    assert run(package, **home) == ("2", False), (
        "it runs where nothing can be kept, and says nothing of what is not kept"
    )
