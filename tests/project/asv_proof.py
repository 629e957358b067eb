"""Checks the verdicts of asv on real commits in a clone.

An empty commit is not a regression, a slower decode path is one, and a commit that cannot be imported is an error, not
a skip.

    python tests/project/asv_proof.py

asv's environment and the data set are shared with this checkout, so that only the first run creates them.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from harness.machine.host import ROOT
from harness.suite.regressions import asv

BENCHMARKS = r"Throughput.*h5ad.*b=16 f=256.*csr|decode_us"
FACTOR = "1.15"

DECODED = """\
        i = held[slot]
        held[slot] = -1
"""
# Every second chunk is inflated twice, which makes a cell about 1.4 times as expensive.
DECODED_TWICE = """\
        i = held[slot]
        if i % 2 and not failed[i]:
            failed[i] = True
            at, to = np.int64(packed[slot].ctypes.data), np.int64(raw[slot].ctypes.data)
            inflate.begin(state, codes, books, slot, at, sizes[i], to, wanted[i], wanted[i] < whole[i])
            continue
        failed[i] = False
        held[slot] = -1
"""
COMMITS = {
    "empty": (0, "BENCHMARKS NOT SIGNIFICANTLY CHANGED", None),
    "slower": (1, "SOME BENCHMARKS HAVE CHANGED SIGNIFICANTLY", ("loadstone/codecs/kernel.py", DECODED, DECODED_TWICE)),
    "broken": (2, "planted", ("loadstone/__init__.py", '"""', 'raise ImportError("planted")\n"""')),
}
"""By name: the exit code of asv, a text in its output, and the planted change (file, old text, new text)."""


def git(clone: Path, *arguments: str) -> None:
    command = ["git", "-c", "user.name=proof", "-c", "user.email=proof@localhost", *arguments]
    subprocess.run(command, cwd=clone, check=True, capture_output=True)


def plant(clone: Path, name: str, change: tuple[str, str, str] | None) -> None:
    """Commits the change in the clone, in a branch `name` at the HEAD of the checkout. None: an empty commit."""
    git(clone, "checkout", "--quiet", "-B", name, "origin/HEAD")
    if change:
        path, old, new = change
        text = (clone / path).read_text()
        if old not in text:
            raise SystemExit(f"error: {path} does not contain the text to replace; update tests/project/asv_proof.py.")
        (clone / path).write_text(text.replace(old, new, 1))
    git(clone, "commit", "--quiet", "--allow-empty", "--all", "--message", name)


def main() -> int:
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder) / "clone"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        (clone / ".asv").mkdir()
        for name in ("env", "data"):
            (ROOT / ".asv" / name).mkdir(parents=True, exist_ok=True)
            (clone / ".asv" / name).symlink_to(ROOT / ".asv" / name)
        asv("machine", "--yes", where=clone, kept=True)
        for name, (expected, message, change) in COMMITS.items():
            plant(clone, name, change)
            arguments = ("--factor", FACTOR, "--show-stderr", "--bench", BENCHMARKS, f"{name}~1", name)
            done = asv("continuous", *arguments, where=clone, kept=True)
            passed = done.returncode == expected and message in done.stdout
            failed += not passed
            print(f"{'ok' if passed else 'FAILED'}: {name}, exit code {done.returncode}", flush=True)
            if not passed or "-v" in sys.argv:
                print(done.stdout)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
