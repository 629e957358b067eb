"""Shared fixtures: a bucket with the tiny data set, served by a real server."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from harness.bucket.process import Running, environment, running

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
