"""Downloads from a local server that breaks off in the middle of its responses."""

import os
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import fsspec
import pytest

from harness.data import download
from harness.errors import UserError

SIZE = 3_000_001
NAMES = ["plate1.h5ad", "plate2.h5ad"]


class Breaking(SimpleHTTPRequestHandler):
    """Serves byte ranges of files, and breaks off in the middle of the responses numbered in `breaks`."""

    breaks: set[int]
    requests: list[str]

    def do_GET(self) -> None:
        byte_range = self.headers.get("Range")
        if not byte_range:
            return super().do_GET()
        self.requests.append(f"{self.path} {byte_range}")
        start, end = (int(n) for n in byte_range.removeprefix("bytes=").split("-"))
        body = Path(self.translate_path(self.path)).read_bytes()[start : end + 1]
        self.send_response(206)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if len(self.requests) in self.breaks:
            body = body[: len(body) // 2]
        self.wfile.write(body)
        return None

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Breaking]]:
    monkeypatch.setattr(download, "RANGE_BYTES", 1_000_000)
    monkeypatch.setattr(download, "WAIT_S", 0.01)
    remote = tmp_path / "remote" / "h5ad"
    remote.mkdir(parents=True)
    for name in NAMES:
        (remote / name).write_bytes(os.urandom(SIZE))
    handler = type("Handler", (Breaking,), {"breaks": set(), "requests": []})
    http = ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(tmp_path / "remote")))
    threading.Thread(target=http.serve_forever, daemon=True).start()
    handler.url = f"http://127.0.0.1:{http.server_port}/"
    yield handler
    http.shutdown()
    http.server_close()


def run(server: type[Breaking], folder: Path) -> list[tuple[int, int]]:
    progress: list[tuple[int, int]] = []
    # A new file system for each run, as in a new process: no cache carries over.
    source = fsspec.filesystem("http", skip_instance_cache=True)
    download.fetch(source, server.url, NAMES, folder, lambda done, total: progress.append((done, total)))
    return progress


def is_complete(tmp_path: Path) -> bool:
    return all((tmp_path / "local" / n).read_bytes() == (tmp_path / "remote/h5ad" / n).read_bytes() for n in NAMES)


def test_files_are_downloaded_whole_with_progress(server: type[Breaking], tmp_path: Path) -> None:
    progress = run(server, tmp_path / "local")
    assert is_complete(tmp_path)
    assert progress[-1] == (2 * SIZE, 2 * SIZE)
    assert [done for done, _ in progress] == sorted(done for done, _ in progress)
    assert sorted(os.listdir(tmp_path / "local")) == NAMES


def test_a_broken_response_is_requested_again(server: type[Breaking], tmp_path: Path) -> None:
    server.breaks = {2, 3, 6}
    run(server, tmp_path / "local")
    assert is_complete(tmp_path)


def test_a_download_resumes_after_a_lost_connection(server: type[Breaking], tmp_path: Path) -> None:
    server.breaks = set(range(3, 100))
    with pytest.raises(UserError, match=r"broke off 6 times running.*goes on from there"):
        run(server, tmp_path / "local")
    assert os.listdir(tmp_path / "local") == ["plate1.h5ad.part"]
    assert (tmp_path / "local/plate1.h5ad.part").stat().st_size == 2_000_000
    server.breaks, before = set(), len(server.requests)
    run(server, tmp_path / "local")
    assert is_complete(tmp_path)
    assert server.requests[before] == "/h5ad/plate1.h5ad bytes=2000000-2999999"
    assert sum("plate1" in request for request in server.requests[before:]) == 2


def test_a_complete_download_requests_nothing(server: type[Breaking], tmp_path: Path) -> None:
    run(server, tmp_path / "local")
    before = len(server.requests)
    run(server, tmp_path / "local")
    assert len(server.requests) == before


def test_a_complete_file_of_another_size_is_refused(server: type[Breaking], tmp_path: Path) -> None:
    run(server, tmp_path / "local")
    with next((tmp_path / "local").rglob("plate1.h5ad")).open("ab") as file:
        file.write(b"more")
    with pytest.raises(UserError, match=r"plate1\.h5ad has .* bytes, not .*; delete it and try again"):
        run(server, tmp_path / "local")


def test_a_disk_that_is_too_small_is_detected_first(
    server: type[Breaking], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "SPARE_BYTES", 1 << 60)
    with pytest.raises(UserError, match=r"has room for 0\.0 GB, and 0\.0 GB are still to come"):
        run(server, tmp_path / "local")
    assert not server.requests


def test_a_missing_remote_file_is_named(server: type[Breaking], tmp_path: Path) -> None:
    (tmp_path / "remote/h5ad/plate2.h5ad").unlink()
    with pytest.raises(UserError, match=r"plate2\.h5ad is not under"):
        run(server, tmp_path / "local")


def test_the_remote_folder_may_be_a_glob(tmp_path: Path) -> None:
    """As for the bucket, whose folder names contain dates."""
    dated = tmp_path / "bucket" / "tahoe-100M" / "2025-02-25" / "h5ad"
    dated.mkdir(parents=True)
    (dated / "plate1.h5ad").write_bytes(b"x" * 10)
    (tmp_path / "bucket" / "scbasecount").mkdir()
    source = fsspec.filesystem("file")
    download.fetch(source, f"{tmp_path}/bucket/tahoe*", ["plate1.h5ad"], tmp_path / "local", lambda *_: None)
    assert (tmp_path / "local/plate1.h5ad").read_bytes() == b"x" * 10
