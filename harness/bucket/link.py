"""A link of limited rate to a server on this machine: a network namespace with a token bucket filter.

Traffic over the loopback interface could not be limited. Only root can make a namespace; without it the server limits
its own rate. The kernel here cannot delay packets, so the server waits itself before each answer. No packet is lost:
one that was would be sent again after 200 ms, and a fetch of a hundred answers would wait for the last of them.
"""

import os
import random
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_network
from typing import NamedTuple

NETWORKS = list(ip_network("198.18.0.0/15").subnets(new_prefix=30))
"""Networks of two addresses each, in the range that is reserved for measurements of networks (RFC 2544)."""
BURST_BYTES = 1 << 18
QUEUE_BYTES = 1 << 26  # as much as many connections have under way, so that the link is slow, and loses nothing


class Link(NamedTuple):
    """host: the address of the server. command: what begins the command line of a server in the namespace."""

    host: str
    command: tuple[str, ...]


def unavailable() -> str | None:
    """Why this machine cannot limit a link; None if it can."""
    if os.geteuid():
        return "only root may make a network namespace"
    if missing := [name for name in ("ip", "tc") if not shutil.which(name)]:
        return f"{' and '.join(missing)} is not installed (Debian: iproute2)"
    return None


@contextmanager
def link(mbps: float | None) -> Iterator[Link]:
    """A namespace whose traffic to this process has at most `mbps` megabits a second (None: no limit).

    OSError if it cannot be made. It is removed at the end, with what runs in it.
    """
    server, client = map(str, random.choice(NETWORKS).hosts())
    unique = f"{random.getrandbits(40):010x}"
    name, outside, inside = f"bucket-{unique}", f"bo-{unique}", f"bi-{unique}"
    within = ("ip", "netns", "exec", name)
    try:
        _run("ip", "netns", "add", name)
        _run("ip", "link", "add", outside, "type", "veth", "peer", "name", inside, "netns", name)
        _run("ip", "address", "add", f"{client}/30", "dev", outside)
        _run("ip", "link", "set", outside, "up")
        _run(*within, "ip", "address", "add", f"{server}/30", "dev", inside)
        _run(*within, "ip", "link", "set", inside, "up")
        if mbps:
            rate = ("rate", f"{mbps:g}mbit", "burst", str(BURST_BYTES), "limit", str(QUEUE_BYTES))
            _run(*within, "tc", "qdisc", "add", "dev", inside, "root", "tbf", *rate)
        yield Link(server, within)
    finally:
        subprocess.run(["ip", "link", "delete", outside], capture_output=True, check=False)
        subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")
