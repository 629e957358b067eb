"""The server of objects answers as S3 does, behind a link that is removed with it; and a loader is measured over it."""

import http.client
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from harness.bucket import link
from harness.bucket.process import running
from harness.condition import Condition, Timing
from harness.data.dataset import Dataset
from harness.grids import Grid
from harness.records.measurement import Measurement
from harness.run import runner
from tests import toys

CONTENT = bytes(range(256)) * 1_000
Ask = Callable[..., tuple[int, dict[str, str], bytes]]


@pytest.fixture
def ask(tmp_path: Path) -> Iterator[Ask]:
    """A function that makes a request to a server of a folder, and returns (status, headers, body)."""
    (tmp_path / "objects" / "below").mkdir(parents=True)
    (tmp_path / "objects" / "a.bin").write_bytes(CONTENT)
    (tmp_path / "objects" / "below" / "b & c").write_bytes(b"b")
    (tmp_path / "secret").write_bytes(b"secret")
    with running(tmp_path / "objects") as server:
        connection = http.client.HTTPConnection(urlsplit(server.endpoint).netloc)

        def request(method: str, path: str, body: bytes | None = None, **headers: str) -> tuple:
            names = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body, names)
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()

        yield request


def test_ranges(ask: Ask) -> None:
    assert ask("GET", "/data/a.bin")[::2] == (200, CONTENT)
    for text, expected in (("0-9", CONTENT[:10]), ("1000-", CONTENT[1000:]), ("-20", CONTENT[-20:])):
        status, headers, body = ask("GET", "/data/a.bin", Range=f"bytes={text}")
        assert (status, body) == (206, expected)
        assert headers["Content-Range"].endswith(f"/{len(CONTENT)}")
    assert ask("GET", "/data/a.bin", Range="bytes=255990-300000")[2] == CONTENT[255_990:]
    assert ask("GET", "/data/a.bin", Range="bytes=256000-256001")[0] == 416


def test_head_and_conditions(ask: Ask) -> None:
    status, headers, body = ask("HEAD", "/data/a.bin")
    assert (status, headers["Content-Length"], body) == (200, str(len(CONTENT)), b"")
    assert ask("GET", "/data/a.bin", If_Match=headers["ETag"])[0] == 200
    assert ask("GET", "/data/a.bin", If_Match='"another"')[0] == 412
    assert ask("PUT", "/data/a.bin", b"new")[0] == 200
    assert ask("GET", "/data/a.bin", If_Match=headers["ETag"])[0] == 412
    assert ask("GET", "/data/a.bin")[2] == b"new"


def test_what_is_not_there(ask: Ask) -> None:
    for path in ("/data/none", "/data/below", "/data/../secret", "/data/%2e%2e/secret"):
        assert ask("GET", path)[0] == 404
    assert ask("PUT", "/data/../secret", b"x")[0] == 400
    assert ask("DELETE", "/data/a.bin")[0] == 405


def test_lists(ask: Ask) -> None:
    whole = ask("GET", "/data?list-type=2")[2].decode()
    assert "<Key>a.bin</Key>" in whole
    assert "<Key>below/b &amp; c</Key>" in whole
    folders = ask("GET", "/data?list-type=2&delimiter=/")[2].decode()
    assert "<Prefix>below/</Prefix>" in folders
    assert "b &amp; c" not in folders
    assert "a.bin" not in ask("GET", "/data?list-type=2&prefix=below/")[2].decode()


def test_what_is_served_is_counted(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(CONTENT)
    with running(tmp_path, faults={"unavailable": 1.0}) as broken, running(tmp_path) as server:
        for each, status in ((broken, 503), (server, 200)):
            connection = http.client.HTTPConnection(urlsplit(each.endpoint).netloc)
            connection.request("GET", "/data/a")
            answer = connection.getresponse()
            assert answer.status == status
            answer.read()
        assert broken.counters()["faults"] == {"unavailable": 1}
        assert (server.counters()["requests"], server.counters()["bytes"]) == ({"GET": 1}, len(CONTENT))


@pytest.mark.skipif(link.unavailable() is not None, reason=str(link.unavailable()))
def test_a_link_has_its_rate_and_leaves_nothing_behind() -> None:
    with link.link(250) as made:
        shown = subprocess.run(
            [*made.command, "tc", "qdisc", "show"], capture_output=True, text=True, check=True
        ).stdout
        assert "tbf" in shown
        assert "rate 250Mbit" in shown
        name = made.command[-1]
    assert name not in subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True).stdout


def over_bucket(dataset: Dataset, folder: Path, loader: str, **knobs: int) -> Measurement:
    condition = Condition(
        dataset="tiny",
        loader=loader,
        batch_size=16,
        cache="first",
        ttfb_ms=1,
        link_mbps=1000,
        knobs=tuple(knobs.items()),
    )
    timing = Timing(warmup_s=0, epoch_s=0, measure_s=0.01, timeout_s=120, order_s=0)
    grid = Grid(name="g", title="", timing=timing, conditions=(condition,))
    return runner.measure_one(grid, dataset, runner.Task(condition, 0), {}, folder, toys.QUIET)


def test_a_loader_is_measured_over_a_bucket(tiny_set: Dataset, tmp_path: Path) -> None:
    m = over_bucket(tiny_set, tmp_path, "native", block_size=8, fetch_factor=4)
    assert (m.status, m.reason) == ("ok", None)
    assert m.requests > 0
    assert m.received_bytes > 0
    assert m.provenance["limits"]["bucket"]["ttfb_ms"] == 1


def test_a_loader_of_files_cannot_be(tiny_set: Dataset, tmp_path: Path) -> None:
    m = over_bucket(tiny_set, tmp_path, "annloader")
    assert (m.status, m.requests) == ("skipped", None)
    assert "it reads files, not objects" in m.reason


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"link_mbps": 1000}, "a condition has with ttfb_ms"),
        ({"ttfb_ms": 30, "cache": "warm"}, 'its cache is "first"'),
        ({"ttfb_ms": 30, "cache": "first", "disk": "hdd"}, "it has no disk"),
        ({"ttfb_ms": -1, "cache": "first"}, "at least 0"),
        ({"ttfb_ms": 30, "cache": "first", "link_mbps": 0}, "above 0"),
    ],
)
def test_invalid_links(fields: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Condition(dataset="tiny", loader="native", **fields)
