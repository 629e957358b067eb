"""Shared fixtures and helpers: the tiny data set, the command line, child processes."""

import io
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import settings

import loaders
from harness.__main__ import main
from harness.bucket.process import Running, environment, running
from harness.data import catalogue
from harness.data.dataset import Dataset
from harness.machine import host, interpreter, pagecache
from tests import tiny

if TYPE_CHECKING:
    from loadstone.sampling.orders import Order

settings.register_profile("untimed", deadline=None)  # no test asserts a duration: the machines are shared
settings.load_profile("untimed")


def pytest_configure() -> None:
    """Puts temporary files on a disk, because a file system in memory cannot be evicted from the page cache."""
    if host.filesystem(Path(tempfile.gettempdir())) in host.MEMORY_FILESYSTEMS:
        (host.ROOT / ".tests").mkdir(exist_ok=True)
        os.environ["PYTEST_DEBUG_TEMPROOT"] = str(host.ROOT / ".tests")


TOGETHER = ("test_bench", "test_fuzz", "test_seaweedfs", "test_azurite")
"""Files whose tests share what is slow to make: the results of a benchmark or of a fuzzer, or a server."""


def together(nodeid: str) -> str:
    """What the tests of one process have in common: a file, a loader with its store, or a cluster of Ray."""
    path, _, test = nodeid.partition("::")
    loader = next((part for part in re.split(r"[\[\]-]", test) if part in loaders.NAMES), None)
    if "fleet" in path or ("test_contract" in path and loader in OF_RAY):
        return "ray"
    if "test_contract" in path and loader:
        return loader
    return path if Path(path).stem in TOGETHER else nodeid


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Divides the tests among the processes by `together`."""
    from xdist.scheduler import LoadScopeScheduling

    class Together(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return together(nodeid)

    return Together(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Makes the tests of Ray Data slow tests, because its actors start anew in each."""
    for item in items:
        if "ray_data" in item.name:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write(tmp_path_factory.mktemp("tiny") / "tiny")


@pytest.fixture(scope="session")
def tiny_set(tiny_folder: Path) -> Dataset:
    return catalogue.load(str(tiny_folder))


OF_RAY = [name for name in loaders.NAMES if "ray" in loaders.get(name).imports]
"""The loaders whose processes are a cluster of Ray."""
OBJECT_STORE = 200 << 20  # bytes


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[str]:
    """The address of a cluster of this machine, of which this process is a part."""
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
    from loadstone.fleet import cluster

    with cluster.one_machine(1, cpus=4, memory=OBJECT_STORE) as (address, actors):
        import ray

        for actor in actors:
            ray.kill(actor)
        yield address


Serve = Callable[..., Running]


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Serve]:
    """A function that serves a folder as a bucket, to which all clients of S3 in this process then go.

    Its arguments are those of `running`. The index of what is opened is kept in the test's own folder.
    """
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with ExitStack() as stack:

        def start(folder: Path, **options: object) -> Running:
            server = stack.enter_context(running(folder, **options))
            for name, value in environment(server.endpoint).items():
                monkeypatch.setenv(name, value)
            return server

        yield start


AS_A_USER = """
import sys
from pathlib import Path
from harness import __main__
from harness.machine import pagecache
pagecache.DROP_CACHES = Path("/nonexistent/drop_caches")
sys.exit(__main__.main())
"""


def as_a_user(*arguments: object) -> list[str]:
    """The command line of `python -m harness`, which then cannot drop the whole page cache, even if run by root."""
    return [sys.executable, "-c", AS_A_USER, *map(str, arguments)]


@pytest.fixture
def harness(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """A function that runs a command of `python -m harness` in `folder`, an empty one, and returns how it ended.

    It runs in this process, since the imports of a new one take a second; workers are processes all the same. As with
    `as_a_user`, the whole page cache is not dropped. environment: variables that the command sees besides the usual.
    """

    def run(*arguments: object, folder: Path = tmp_path, **environment: str) -> subprocess.CompletedProcess[str]:
        out, errors = io.StringIO(), io.StringIO()
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(errors):
            patch.chdir(folder)
            patch.setattr(pagecache, "DROP_CACHES", Path("/nonexistent/drop_caches"))
            for name, value in environment.items():
                patch.setenv(name, value)
            try:
                code = main([str(argument) for argument in arguments])
            except SystemExit as end:  # of argparse
                code = end.code
        return subprocess.CompletedProcess(arguments, code, out.getvalue(), errors.getvalue())

    return run


def program(code: str, *arguments: object) -> subprocess.Popen[str]:
    """Starts Python code in a child process that can be killed; its arguments are in sys.argv[1:]."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)], cwd=host.ROOT, stdout=subprocess.PIPE, text=True
    )


def until(condition: Callable[[], bool], seconds: float = 30) -> None:
    """Waits until the condition is true. The test fails if it is not within `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not become true in time"
        time.sleep(0.05)


def fetches(order: "Order") -> Iterator[np.ndarray]:
    """Yields all fetches of an order in sequence."""
    for k in range(-(-order.n_rows // order.fetch_rows)):
        yield order.fetch(k)


def skip_unless_available(name: str) -> None:
    """Skips the test if the loader is not installed, or has its own Python environment.

    If the environment variable REQUIRE (comma-separated) names a loader that is not installed, the test fails instead.
    """
    if reason := loaders.unavailable(name):
        if name in os.environ.get("REQUIRE", "").split(","):
            pytest.fail(reason)
        pytest.skip(reason)
    if environment := interpreter.own(name):
        pytest.skip(f"test_interpreter.py tests it with the Python of {environment}")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder with a file system of 20 MB mounted on it. Skips the test if this user may not mount file systems."""
    folder = tmp_path / "data"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=20m", "tmpfs", str(folder)], capture_output=True)
    if mounted.returncode:
        pytest.skip("this user may not mount a small disk")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)
