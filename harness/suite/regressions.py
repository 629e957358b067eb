"""asv, with everything it writes under .asv/: the speed of commits, compared with each other.

    python -m harness.suite.regressions compare origin/main 1.15   # HEAD against the commit at which it left another
    python -m harness.suite.regressions check                      # do all benchmarks run, in this very environment?
    python -m harness.suite.regressions publish                    # what was measured so far, as a site under .asv/html

The exit code is asv's own: of `compare` 1 for a regression by more than the factor, 2 where a benchmark failed.
"""

import os
import subprocess
import sys
from pathlib import Path

from harness.machine.host import ROOT

FOLDER = ROOT / ".asv"
CHECK_S = "0.1"  # a window in which a benchmark shows that it runs, and times nothing


def asv(*arguments: str, where: Path = ROOT, kept: bool = False, **more: str) -> subprocess.CompletedProcess:
    """Runs asv in a checkout; its file on the machine, which it keeps in the home folder, goes to .asv/ as well.

    kept: what it says is kept in `stdout`, and not shown.
    """
    home = where / ".asv"
    home.mkdir(exist_ok=True)
    caches = {"UV_CACHE_DIR": "uv", "PIP_CACHE_DIR": "pip"}
    usual = {name: str(Path.home() / ".cache" / folder) for name, folder in caches.items()}
    said = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True} if kept else {}
    # asv takes the python3.12 that it finds first, which may be a stand-in of pyenv's that does not start.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    environment = usual | os.environ | {"HOME": str(home), "PATH": path} | more
    return subprocess.run([sys.executable, "-m", "asv", *arguments], cwd=where, env=environment, **said)


def compare(base: str, factor: str) -> int:
    found = _git("merge-base", base, "HEAD")
    if found.returncode:
        return _refuse(f"There is no commit {base} that HEAD comes from; name another with BASE=.")
    left, head = found.stdout.strip(), _git("rev-parse", "HEAD").stdout.strip()
    if left == head:
        return _refuse(f"{base} has all of HEAD, so there is nothing to compare; BASE=HEAD~1 takes one commit.")
    if _git("cat-file", "-e", f"{left}:loadstone/__init__.py").returncode:
        return _refuse(f"{left[:9]} is from before the library was a package of its own, which is what is measured.")
    if _git("status", "--porcelain", "--untracked-files=no").stdout:
        print("note: asv compares commits; what is not committed is not measured.", file=sys.stderr)
    asv("machine", "--yes", kept=True)
    return asv("continuous", "--factor", factor, "--show-stderr", left, head).returncode


def check() -> int:
    """Every benchmark once, in short windows, and no result kept; not 0 if one fails."""
    asv("machine", "--yes", kept=True)
    sound = asv("check", "--python=same").returncode
    quick = ("run", "--python=same", "--quick", "--dry-run", "--show-stderr")
    return sound or asv(*quick, ASV_MEASURE_S=CHECK_S).returncode


def publish() -> int:
    return asv("publish").returncode


def _git(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)


def _refuse(why: str) -> int:
    print(f"error: {why}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    verbs = {"compare": compare, "check": check, "publish": publish}
    if sys.argv[1:2] == [] or sys.argv[1] not in verbs:
        sys.exit(_refuse(f"say one of {', '.join(verbs)}"))
    sys.exit(verbs[sys.argv[1]](*sys.argv[2:]))
