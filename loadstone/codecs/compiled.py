"""Compiles functions with numba, and caches their machine code on disk."""

import logging
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numba
from numba.core import caching

CODECS = Path(__file__).parent


def compiled(function: Callable, *, forceinline: bool = False) -> Any:
    """A decorator: `numba.njit` without the GIL. Compiles at the first call for each combination of types.

    The machine code is cached on disk: in NUMBA_CACHE_DIR if it is set, otherwise beside the source file, or in the
    user's cache folder if that is not writable. If no folder is writable, every process compiles again.

    Functions of other files are compiled into a function, but numba's cache is only invalidated by changes of the
    function's own file. This cache is also invalidated by a change of any file in codecs/, except in NUMBA_CACHE_DIR,
    where numba's rule holds.
    """
    dispatcher: Any = numba.njit(nogil=True, forceinline=forceinline)(function)
    with suppress(RuntimeError):  # no folder can be written
        dispatcher._cache = _Cache(function)
    return dispatcher


inlined = partial(compiled, forceinline=True)
"""Like `compiled`, for a function that is always inlined into its callers."""


@cache
def _state(file: str) -> str:
    """A hash of the source file `file` and all source files in codecs/, SHA-256 in hexadecimal."""
    return sha256(Path(file).read_bytes() + _state_of_codecs()).hexdigest()


@cache
def _state_of_codecs() -> bytes:
    return sha256(b"".join(path.read_bytes() for path in sorted(CODECS.rglob("*.py")))).digest()


class _OfCodecs:
    _py_file: str

    def get_source_stamp(self) -> str:
        return _state(self._py_file)


class _BesideTheCode(_OfCodecs, caching.InTreeCacheLocator):
    pass


class _InUserCache(_OfCodecs, caching.UserWideCacheLocator):
    pass


class _Implementation(caching.CompileResultCacheImpl):
    _locator_classes = [caching.UserProvidedCacheLocator, _BesideTheCode, _InUserCache]


class _Cache(caching.FunctionCache):
    _impl_class = _Implementation

    def load_overload(self, *arguments: Any) -> Any:
        overload = super().load_overload(*arguments)
        if overload is None:
            _say_once()
        return overload


@cache
def _say_once() -> None:
    logging.getLogger("loadstone").warning(
        "loadstone compiles its loops, once for each type of numbers: up to a quarter of a minute "
        "(python -m loadstone.compile does it ahead)"
    )
