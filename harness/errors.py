"""The exception for errors that the user can correct."""

from collections.abc import Iterable
from difflib import get_close_matches


class UserError(Exception):
    """An error that the user can correct. The command line prints its message on standard error and exits with 2."""


def unknown(kind: str, name: str, available: Iterable[str]) -> UserError:
    """Returns the error for an unknown name. Its message suggests a similar available name, if there is one.

    kind: what the name stands for, such as "loader" or "grid".
    """
    names = sorted(available)
    near = get_close_matches(name, names, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return UserError(f"Unknown {kind} {name!r}.{hint} Available: {', '.join(names) or 'none'}.")
