"""Objects in object storage: ranges of their bytes, read whole or not at all."""

import random
import re
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple

from loadstone.remote.urls import Storage, open_store, parent, redacted

CONNECTIONS = 64  # at most, at the same time
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 5.0  # between two tries; each is twice as long as the one before
PATIENCE_S = 60.0  # after which a range is not tried again
CREDENTIALS_PATIENCE_S = 5.0  # likewise, if no service of the machine's cloud gives credentials
FINAL = re.compile(r"status code: (4(?!08|29)\d\d|501)|redirect|builder error")
"""In the message of an answer that another try will not change: other than "time-out" and "too many requests"."""
NO_CREDENTIALS = re.compile(r"token request|latest/api/token|security-credentials")
"""In the message of an error of the services that give the machines of a cloud their credentials."""


class Object(NamedTuple):
    """An object that must not change while it is open.

    store, key: where it is, for obstore. etag: changes with its content; "" if the server states none. size: in bytes.
    """

    url: str
    store: Any
    key: str
    etag: str
    size: int

    def read(self, place: int, size: int) -> bytes:
        """`size` bytes at offset `place`. Errors: `get`."""
        return self.get(place, size).to_bytes()

    def get(self, place: int, size: int) -> Any:
        """`size` bytes at offset `place`, in a buffer of obstore.

        Raises OSError that names the object and the range: see `_tried`, and if the object has changed since it was
        opened.
        """
        from obstore import get
        from obstore.exceptions import PreconditionError

        options: Any = {"range": (place, place + size)}
        if self.etag and not self.etag.startswith("W/"):  # a weak ETag never matches a condition
            options["if_match"] = self.etag

        def whole() -> Any:
            try:
                answer = get(self.store, self.key, options=options)
                is_same = (answer.meta["e_tag"] or "", answer.meta["size"]) == (self.etag, self.size)
            except PreconditionError:
                is_same = False
            if not is_same:
                raise OSError(f"{self.url} has changed since it was opened; open it again")
            data = answer.bytes()
            if len(data) != size:
                raise _Short(f"{len(data):,} bytes came")
            return data

        return _tried(f"{self.url}, bytes {place:,} to {place + size:,},", whole)


def open_objects(urls: Sequence[str], storage: Storage) -> list[Object]:
    """The objects at these URLs, asked for at the same time. OSError if one is missing or cannot be read.

    storage: see `urls.open_store`.
    """
    stores: dict[str, Any] = {}
    for url in urls:
        folder, _ = parent(url)
        if folder not in stores:
            stores[folder] = open_store(folder, storage)
    with ThreadPoolExecutor(min(CONNECTIONS, len(urls))) as pool:
        return list(pool.map(lambda url: _open(url, stores[parent(url)[0]]), urls))


def _open(url: str, store: Any) -> Object:
    from obstore import head

    key = parent(url)[1]
    meta = _tried(url, lambda: head(store, key))
    return Object(url, store, key, meta["e_tag"] or "", meta["size"])


class _Short(Exception):  # noqa: N818 - of one answer, not of the program
    """Fewer bytes came than were asked for."""


def _tried[T](what: str, request: Callable[[], T]) -> T:
    """What `request` returns.

    A request that fails, is reset, times out or is short is made again, after longer and longer pauses, for PATIENCE_S;
    for CREDENTIALS_PATIENCE_S if there are no credentials. Raises OSError about `what` after that time, and at once if
    the server denies access or will never answer otherwise.
    """
    from obstore.exceptions import GenericError, JoinError

    start, pauses, tries = time.monotonic(), _pauses(), 0
    while True:
        tries += 1
        with explained(what):
            try:
                return request()
            except (GenericError, JoinError, _Short) as error:
                problem = redacted(error)
                if FINAL.search(problem):
                    raise
        pause, passed = next(pauses), time.monotonic() - start
        if NO_CREDENTIALS.search(problem) and passed + pause > CREDENTIALS_PATIENCE_S:
            raise denied(what, problem)
        if passed + pause > PATIENCE_S:
            raise OSError(f"{what} cannot be read: {problem} ({tries} tries in {passed:.0f} s)")
        time.sleep(pause)


def _pauses() -> Iterator[float]:
    pause = FIRST_PAUSE_S
    while True:
        yield pause * random.uniform(0.5, 1)  # so that many readers do not all come back at once
        pause = min(2 * pause, LONGEST_PAUSE_S)


@contextmanager
def explained(what: str) -> Iterator[None]:
    """Turns the errors of obstore into an OSError about `what`, in which no credentials are."""
    from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError

    try:
        yield
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{what} does not exist: {redacted(error)}") from error
    except (PermissionDeniedError, UnauthenticatedError) as error:
        raise denied(what, redacted(error)) from error
    except BaseError as error:
        problem = redacted(error)
        if "builder error" in problem:  # what the HTTP client calls a URL that it may not request
            problem = f"a server without TLS takes storage={{'allow_http': True}} ({problem})"
        raise OSError(f"{what} cannot be read: {problem}") from error


def denied(what: str, problem: str) -> PermissionError:
    """The error of credentials that are wrong or missing."""
    return PermissionError(
        f"{what} may not be read with these credentials ({problem}); they come from `storage=`, the environment or a "
        "profile, and a public bucket takes none: storage={'skip_signature': True}"
    )
