"""The commit of this checkout, and whether its code has been changed since."""

import subprocess

from harness.machine.host import ROOT


def state() -> tuple[str | None, bool | None]:
    """(hash of the commit, whether the code differs from that commit); (None, None) outside a checkout or without git.

    "The code" is the tracked files outside results/, and the untracked files in the packages that git does not ignore.
    """

    def git(*arguments: str) -> str | None:
        try:
            completed = subprocess.run(
                ["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=True, timeout=30
            )
        except (OSError, subprocess.SubprocessError):  # no git, or not a checkout
            return None
        return completed.stdout.strip()

    commit = git("rev-parse", "HEAD")
    if commit is None:
        return None, None
    changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!results")
    return commit, bool(changed or git("status", "--porcelain", "--", "harness", "loaders", "loadstone", "analysis"))
