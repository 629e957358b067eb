"""The exception for errors that the user can correct."""

from collections.abc import Iterable
from difflib import get_close_matches


class UserError(Exception):
    """Invalid input. The command line prints the message on standard error and exits with 2."""


def unknown(kind: str, name: str, available: Iterable[str]) -> UserError:
    """The error for a name that does not exist, with the most similar one that does."""
    names = sorted(available)
    near = get_close_matches(name, names, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return UserError(f"Unknown {kind} {name!r}.{hint} Available: {', '.join(names) or 'none'}.")
