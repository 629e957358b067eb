"""Runs the server of objects in a process of its own, behind a link."""

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.bucket import link as links
from harness.bucket.server import COUNTERS
from harness.machine import host

BUCKET = "data"
"""The name of the only bucket. The server serves the same objects under any name."""


@dataclass(frozen=True, kw_only=True)
class Running:
    """A server that runs. endpoint: its URL. folder: what it serves. facts: how it is limited, for records."""

    endpoint: str
    folder: Path
    facts: Mapping[str, Any]

    def url(self, path: Path) -> str:
        """The URL of a file below the folder."""
        return f"s3://{BUCKET}/{path.resolve().relative_to(self.folder)}"

    def counters(self) -> dict[str, Any]:
        """What was served until now, see `server.Counters`."""
        with urllib.request.urlopen(self.endpoint + COUNTERS) as answer:
            return json.load(answer)


def environment(endpoint: str) -> dict[str, str]:
    """The variables by which the clients of S3 find the server. The keys are not secret: it checks none."""
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ENDPOINT": endpoint,  # of Lance and obstore
        "S3_ENDPOINT_URL": endpoint,  # of MosaicML's streaming
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "unused",
        "AWS_SECRET_ACCESS_KEY": "unused",
        "AWS_ALLOW_HTTP": "true",
        "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "false",
        "AWS_EC2_METADATA_DISABLED": "true",
    }


@contextmanager
def running(
    folder: Path,
    *,
    link_mbps: float | None = None,
    ttfb_ms: float = 0.0,
    connection_mbps: float | None = None,
    faults: Mapping[str, float] | None = None,
) -> Iterator[Running]:
    """A server of the files below `folder`, on a port of its own.

    link_mbps: the rate of all connections together, by the kernel where that is possible, otherwise by the server.
    connection_mbps: that of each connection. ttfb_ms: see `server.Behaviour`. faults: likewise. Rates are in megabits a
    second. OSError if it does not start.
    """
    with ExitStack() as stack:
        by_kernel = links.unavailable() is None
        address = stack.enter_context(links.link(link_mbps)) if by_kernel else links.Link("127.0.0.1", ())
        options = {
            "ttfb_s": ttfb_ms / 1e3,
            "connection_bytes_per_s": connection_mbps and connection_mbps * 1e6 / 8,
            "link_bytes_per_s": None if by_kernel else link_mbps and link_mbps * 1e6 / 8,
            "faults": dict(faults or {}),
        }
        command = [*address.command, sys.executable, "-m", "harness.bucket", str(folder), "--host", address.host]
        process = stack.enter_context(
            subprocess.Popen(
                [*command, "--behaviour", json.dumps(options)], stdout=subprocess.PIPE, text=True, cwd=host.ROOT,
                env=os.environ | host.thread_budget(1),
            )
        )  # fmt: skip
        stack.callback(process.terminate)
        port = process.stdout.readline().strip()
        if not port:
            raise OSError(f"the server of objects did not start (exit code {process.wait()})")
        facts = {
            "link": "token bucket filter" if by_kernel else "by the server",
            "link_mbps": link_mbps,
            "ttfb_ms": ttfb_ms,
            "connection_mbps": connection_mbps,
            "tls": False,
        }
        yield Running(endpoint=f"http://{address.host}:{port}", folder=folder.resolve(), facts=facts)
