"""Buffers between guard pages, and child processes that run numbered cases and die if one touches a guard page.

    python -m tests.loadstone.guarded tests.loadstone.test_guard_pages:inflate_case 0 100000

runs the cases 0 to 99,999 of a test, and prints how often each kind of case occurred. The environment variable
GUARD_CASES sets how many cases the tests run.
"""

import ctypes
import importlib
import mmap
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np

ROOT = Path(__file__).parents[2]
NO_ACCESS = 0


class Arena:
    """Memory of at least `size` bytes between two guard pages, which cannot be read or written."""

    def __init__(self, size: int) -> None:
        page, size = mmap.PAGESIZE, -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        mapped = np.frombuffer(mmap.mmap(-1, size + 2 * page), np.uint8)
        protect = ctypes.CDLL(None, use_errno=True).mprotect
        for guard in (mapped[:page], mapped[-page:]):
            if protect(ctypes.c_void_p(guard.ctypes.data), ctypes.c_size_t(page), NO_ACCESS):
                raise OSError(ctypes.get_errno(), "mprotect")
        self.memory = mapped[page:-page]

    def take(self, n: int, at_end: bool) -> np.ndarray:
        """`n` bytes of the memory, next to a guard page: before the last one if at_end, else after the first."""
        return self.memory[len(self.memory) - n :] if at_end else self.memory[:n]


class Ended(NamedTuple):
    """How a child ended.

    code: its exit code, or minus the number of the signal that killed it. case: the number of the last case that began.
    output: its standard output and standard error.
    """

    code: int
    case: str
    output: str


def run_cases(function: str, numbers: range, folder: Path) -> Ended:
    """Runs the cases `numbers` in a child process.

    function: "module:function", which is called with the number of each case. folder: for a file with that number.
    """
    log = folder / "case"
    command = [
        sys.executable,
        "-m",
        "tests.loadstone.guarded",
        function,
        str(numbers.start),
        str(numbers.stop),
        str(log),
    ]
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return Ended(finished.returncode, log.read_text() if log.exists() else "none", finished.stdout + finished.stderr)


def cases(default: int) -> int:
    """The number of cases that a test runs: the environment variable GUARD_CASES, or `default` if it is not set."""
    return int(os.environ.get("GUARD_CASES", default))


def survive(function: str, n: int, folder: Path) -> None:
    """Runs the cases 0 to n - 1 in a child. AssertionError, with the number, if a case fails or kills the child."""
    ended = run_cases(function, range(max(1, n)), folder)
    assert ended.code == 0, f"{function}({ended.case}): exit code {ended.code}\n{ended.output[-2_000:]}"


def main(name: str, start: str, stop: str, log: str = "") -> None:
    module, function = name.split(":")
    case, kinds = getattr(importlib.import_module(module), function), Counter()
    with open(log, "wb", buffering=0) if log else tempfile.TemporaryFile(buffering=0) as file:
        for number in range(int(start), int(stop)):
            os.pwrite(file.fileno(), f"{number:<20}".encode(), 0)  # before the case runs, which may kill the process
            kinds.update(case(number))
    for kind, n in sorted(kinds.items()):
        print(f"{n:>10,} {kind}")


if __name__ == "__main__":
    main(*sys.argv[1:])
