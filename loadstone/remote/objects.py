"""Objects in object storage: ranges of their bytes, read whole or not at all."""

import random
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple

from loadstone.remote.urls import Storage, open_store, parent, redacted

CONNECTIONS = 64  # at most, at the same time
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 5.0  # between two tries; each is twice as long as the one before
PATIENCE_S = 60.0  # after which a range is not tried again


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

        Requests that fail, are reset, time out or bring too few bytes are made again, after longer and longer pauses,
        for PATIENCE_S. Raises OSError that names the object and the range: after that time, if access is denied, or if
        the object has changed since it was opened.
        """
        from obstore import get
        from obstore.exceptions import PreconditionError

        options: Any = {"range": (place, place + size)}
        if self.etag and not self.etag.startswith("W/"):  # a weak ETag never matches a condition
            options["if_match"] = self.etag
        start, tries = time.monotonic(), 0
        pauses = _pauses()
        while True:
            tries += 1
            with explained(f"{self.url}, bytes {place:,} to {place + size:,},"):
                try:
                    answer = get(self.store, self.key, options=options)
                    if (answer.meta["e_tag"] or "") != self.etag or answer.meta["size"] != self.size:
                        raise OSError(f"{self.url} has changed since it was opened; open it again")
                    data = answer.bytes()
                    if len(data) == size:
                        return data
                    problem = f"{len(data):,} bytes came"
                except PreconditionError as error:
                    raise OSError(f"{self.url} has changed since it was opened; open it again") from error
                except _passing() as error:
                    problem = redacted(error)
            pause, passed = next(pauses), time.monotonic() - start
            if passed + pause > PATIENCE_S:
                raise OSError(
                    f"{self.url}, bytes {place:,} to {place + size:,}, cannot be read: {problem} "
                    f"({tries} tries in {passed:.0f} s)"
                )
            time.sleep(pause)


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

    start, pauses = time.monotonic(), _pauses()
    while True:
        with explained(url):
            try:
                meta = head(store, parent(url)[1])
                return Object(url, store, parent(url)[1], meta["e_tag"] or "", meta["size"])
            except _passing() as error:
                problem = redacted(error)
        pause = next(pauses)
        if time.monotonic() - start + pause > PATIENCE_S:
            raise OSError(f"{url} cannot be opened: {problem}")
        time.sleep(pause)


def _pauses() -> Iterator[float]:
    pause = FIRST_PAUSE_S
    while True:
        yield pause * random.uniform(0.5, 1)  # so that many readers do not all come back at once
        pause = min(2 * pause, LONGEST_PAUSE_S)


def _passing() -> tuple[type[BaseException], ...]:
    """The errors of a request that may succeed when it is made again."""
    from obstore.exceptions import GenericError, JoinError

    return GenericError, JoinError


@contextmanager
def explained(what: str) -> Iterator[None]:
    """Turns the errors of obstore into an OSError about `what`, in which no credentials are."""
    from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError

    try:
        yield
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{what} does not exist: {redacted(error)}") from error
    except (PermissionDeniedError, UnauthenticatedError) as error:
        raise PermissionError(
            f"{what} may not be read with these credentials ({redacted(error)}); they come from `storage=`, the "
            "environment or a profile, and a public bucket takes none: storage={'skip_signature': True}"
        ) from error
    except BaseError as error:
        raise OSError(f"{what} cannot be read: {redacted(error)}") from error
