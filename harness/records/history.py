"""Compares files of records with their history in git: since SINCE, lines are only added."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

SINCE = "2026-11-23T20:45:00Z"
"""Before, rows of older code were sometimes removed when a grid was measured again."""
COUNTS = ("--numstat", "--relative", "--no-renames", "--", "*.jsonl")


def removals(folder: Path) -> Iterator[tuple[Path, str]]:
    """(file, reason) for each file of records below the folder from which lines were removed, or in which they changed.

    Looks at the commits since SINCE, and at what is not committed. Nothing outside a checkout or without git; commits
    that a shallow clone lacks are not seen.
    """
    log = _git(folder, "log", f"--since={SINCE}", "--format=commit %h", *COUNTS)
    diff = _git(folder, "diff", *COUNTS[:-2], "HEAD", *COUNTS[-2:])
    where = ""
    for line in [*log, "uncommitted", *diff]:
        match line.split("\t"):
            case [_, removed, name] if removed != "0":
                yield folder / name, f"{removed} of its lines were removed or changed ({where}); records are only added"
            case [text] if text:
                where = text


def _git(folder: Path, *arguments: str) -> list[str]:
    try:
        completed = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True, timeout=60
        )
    except (OSError, subprocess.SubprocessError):  # no git, or not a checkout
        return []
    return completed.stdout.splitlines()
