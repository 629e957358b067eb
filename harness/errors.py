"""The one exception a user is meant to read."""

from collections.abc import Iterable
from difflib import get_close_matches


class UserError(Exception):
    """Bad input. The command line prints it as one sentence on standard error and exits with 2."""


def unknown(kind: str, name: str, available: Iterable[str]) -> UserError:
    """An error for a name that does not exist, with the nearest one that does."""
    names = sorted(available)
    near = get_close_matches(name, names, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return UserError(f"Unknown {kind} {name!r}.{hint} Available: {', '.join(names) or 'none'}.")
