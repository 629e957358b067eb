"""The commit of this checkout, and the state of the code that decides what is measured."""

import hashlib
import subprocess

from harness.machine.host import ROOT

MEASURED = (
    "loadstone", "loaders", "harness/bucket", "harness/condition.py", "harness/machine", "harness/run",
    "requirements.lock", "requirements-cellarium.lock", "requirements-mosaic.lock",
)  # fmt: skip
"""The files that are measured, or that decide how: tables mix no rows of different states of them."""


def state() -> tuple[str | None, bool | None]:
    """(hash of the commit, whether the code differs from that commit); (None, None) outside a checkout or without git.

    "The code" is the tracked files outside results/, and the untracked files in the packages that git does not ignore.
    """
    commit = _git("rev-parse", "HEAD")
    if commit is None:
        return None, None
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!results")
    return commit, bool(changed or _git("status", "--porcelain", "--", "harness", "loaders", "loadstone", "analysis"))


def code() -> str | None:
    """12 hex digits of a hash of the committed content of MEASURED; None outside a checkout or without git.

    Commits that change only documents, analysis, tests or results have the same.
    """
    listed = _git("ls-tree", "HEAD", "--", *MEASURED)
    return hashlib.sha256(listed.encode()).hexdigest()[:12] if listed else None


def _git(*arguments: str) -> str | None:
    try:
        completed = subprocess.run(
            ["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=True, timeout=30
        )
    except (OSError, subprocess.SubprocessError):  # no git, or not a checkout
        return None
    return completed.stdout.strip()
