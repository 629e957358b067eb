"""Fixtures: the tiny set, and the command line as a user calls it."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import settings

import loaders
from harness.data import catalogue
from harness.data.dataset import Dataset
from harness.machine import host, interpreter
from tests import tiny

if TYPE_CHECKING:
    from loadstone.sampling.orders import Order

settings.register_profile("untimed", deadline=None)  # no test asserts a time: these machines are shared
settings.load_profile("untimed")


def pytest_configure() -> None:
    """Puts the tests' files on a disk: what lies on a file system in memory cannot be evicted from memory."""
    if host.filesystem(Path(tempfile.gettempdir())) in host.MEMORY_FILESYSTEMS:
        (host.ROOT / ".tests").mkdir(exist_ok=True)
        os.environ["PYTEST_DEBUG_TEMPROOT"] = str(host.ROOT / ".tests")


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write(tmp_path_factory.mktemp("tiny") / "tiny")


@pytest.fixture(scope="session")
def tiny_set(tiny_folder: Path) -> Dataset:
    return catalogue.load(str(tiny_folder))


AS_A_USER = """
import sys
from pathlib import Path
from harness import __main__
from harness.machine import pagecache
pagecache.DROP_CACHES = Path("/nonexistent/drop_caches")
sys.exit(__main__.main())
"""


def as_a_user(*arguments: object) -> list[str]:
    """The command `python -m harness ...` of one who is not root, and so puts single files out of the page cache."""
    return [sys.executable, "-c", AS_A_USER, *map(str, arguments)]


@pytest.fixture
def harness(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs the command as a user does, in an empty folder."""

    def run(*arguments: object, **options: object) -> subprocess.CompletedProcess[str]:
        command = as_a_user(*arguments)
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, **options)

    return run


def program(code: str, *arguments: object) -> subprocess.Popen[str]:
    """A Python program of its own, so that it can be killed; its arguments are in sys.argv[1:]."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)], cwd=host.ROOT, stdout=subprocess.PIPE, text=True
    )


def fetches(order: "Order") -> Iterator[np.ndarray]:
    """All fetches of an order, one after another."""
    for k in range(-(-order.n_rows // order.fetch_rows)):
        yield order.fetch(k)


def skip_unless_available(name: str) -> None:
    """Skips for a loader that is not installed, or not for this Python; fails where REQUIRE names an absent one."""
    if reason := loaders.unavailable(name):
        if name in os.environ.get("REQUIRE", "").split(","):
            pytest.fail(reason)
        pytest.skip(reason)
    if environment := interpreter.own(name):
        pytest.skip(f"the Python of {environment} tests it: test_interpreter.py")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 20 MB, where this user may mount one."""
    where = tmp_path / "data"
    where.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=20m", "tmpfs", str(where)], capture_output=True)
    if mounted.returncode:
        pytest.skip("this user may not mount a small disk")
    yield where
    subprocess.run(["umount", str(where)], check=True)
