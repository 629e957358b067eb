"""Compares the speed of commits with asv. All files that asv writes are under .asv/.

    python -m harness.suite.regressions compare origin/main 1.15   # HEAD against its merge base with origin/main
    python -m harness.suite.regressions check                      # runs all benchmarks once in this environment
    python -m harness.suite.regressions publish                    # writes a site of all results to .asv/html

The exit code is that of asv. `compare` exits with 1 if a benchmark has become slower by more than the factor (here
1.15), and with 2 if a benchmark failed or there is nothing to compare.
"""

import os
import subprocess
import sys
from pathlib import Path

from harness.machine.host import ROOT

FOLDER = ROOT / ".asv"
CHECK_S = "0.1"  # window of `check`: too short for a measurement, long enough to show that a benchmark runs


def asv(*arguments: str, where: Path = ROOT, kept: bool = False, **more: str) -> subprocess.CompletedProcess:
    """Runs asv with `arguments` in the checkout `where`, and returns the completed process, even if asv failed.

    HOME is set to .asv/, because asv writes a description of the machine into the home folder. kept: capture the output
    in `stdout` instead of printing it. more: additional environment variables.
    """
    home = where / ".asv"
    home.mkdir(exist_ok=True)
    caches = {"UV_CACHE_DIR": "uv", "PIP_CACHE_DIR": "pip"}
    defaults = {name: str(Path.home() / ".cache" / folder) for name, folder in caches.items()}
    capture = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True} if kept else {}
    # asv uses the first python3.12 in PATH, which may be a shim of pyenv that does not start.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    environment = defaults | os.environ | {"HOME": str(home), "PATH": path} | more
    return subprocess.run([sys.executable, "-m", "asv", *arguments], cwd=where, env=environment, **capture)


def compare(base: str, factor: str) -> int:
    """Compares the speed of HEAD with that of the merge base of HEAD and `base`. Returns the exit code.

    factor: the ratio of times above which asv reports a regression, such as "1.15".
    """
    merge_base = _git("merge-base", base, "HEAD")
    if merge_base.returncode:
        return _refuse(f"There is no commit {base} with an ancestor in common with HEAD; choose another with BASE=.")
    ancestor, head = merge_base.stdout.strip(), _git("rev-parse", "HEAD").stdout.strip()
    if ancestor == head:
        return _refuse(f"{base} contains HEAD, so there is nothing to compare; BASE=HEAD~1 compares the last commit.")
    if _git("cat-file", "-e", f"{ancestor}:loadstone/__init__.py").returncode:
        return _refuse(f"{ancestor[:9]} does not have the package loadstone, which is what is measured.")
    if _git("status", "--porcelain", "--untracked-files=no").stdout:
        print("note: asv compares commits; uncommitted changes are not measured.", file=sys.stderr)
    asv("machine", "--yes", kept=True)
    return asv("continuous", "--factor", factor, "--show-stderr", ancestor, head).returncode


def check() -> int:
    """Runs every benchmark once, for a short time, without saving results. Returns 0 if none of them fails."""
    asv("machine", "--yes", kept=True)
    failed = asv("check", "--python=same").returncode
    run = ("run", "--python=same", "--quick", "--dry-run", "--show-stderr")
    return failed or asv(*run, ASV_MEASURE_S=CHECK_S).returncode


def publish() -> int:
    return asv("publish").returncode


def _git(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)


def _refuse(reason: str) -> int:
    print(f"error: {reason}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    verbs = {"compare": compare, "check": check, "publish": publish}
    if sys.argv[1:2] == [] or sys.argv[1] not in verbs:
        sys.exit(_refuse(f"say one of {', '.join(verbs)}"))
    sys.exit(verbs[sys.argv[1]](*sys.argv[2:]))
