"""`python -m loadstone.fleet up` as a process, and consumers in others."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from harness.machine.host import ROOT
from tests.conftest import until
from tests.fleet.conftest import CONSUMER
from tests.tiny import N


@contextmanager
def up(*arguments: str) -> Iterator[str]:
    """Producers of this command line, which are ended by SIGINT. Yields the address that the command prints."""
    command = [sys.executable, "-m", "loadstone.fleet", "up", *arguments]
    with subprocess.Popen(command, cwd=ROOT, env=fresh_environment(""), stdout=subprocess.PIPE, text=True) as process:
        try:
            (address,) = re.findall(r"RAY_ADDRESS=(\S+)", process.stdout.readline())
            children = psutil.Process(process.pid).children(recursive=True)
            yield address
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    until(lambda: not any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in children))


def fresh_environment(address: str) -> dict[str, str]:
    """What a new terminal would have: without what Ray has set in this process."""
    return {k: v for k, v in os.environ.items() if not k.startswith("RAY_AUTH")} | {"RAY_ADDRESS": address}


def consume(folder: Path, address: str) -> None:
    code = CONSUMER + "print(len({row for batch in dataset for row in batch['rows'].tolist()}))"
    environment = fresh_environment(address)
    command = [sys.executable, "-c", code, str(folder)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{N}\n"


def test_producers_of_a_machine_serve_another_process_and_end_by_an_interrupt(tiny_folder: Path) -> None:
    with up("--producers", "2", "--memory", "0.2") as address:
        consume(tiny_folder, address)
