"""A folder in object storage, for small files that are read and written whole."""

from typing import Any

from loadstone.remote.objects import explained
from loadstone.remote.urls import Storage, open_store


class RemoteFolder:
    """The objects below a URL. storage: see `urls.open_store`; ValueError as there."""

    def __init__(self, url: str, storage: Storage) -> None:
        self.url, self.store = url.rstrip("/"), open_store(url.rstrip("/"), storage)

    def get(self, name: str) -> bytes:
        """The content of an object. OSError if it is missing or cannot be read."""
        from obstore import get

        with explained(f"{self.url}/{name}"):
            return bytes(get(self.store, name).bytes())

    def names(self) -> list[str]:
        """The names of the objects directly below the URL. OSError if they cannot be listed."""
        from obstore import list_with_delimiter

        with explained(self.url):
            return [meta["path"] for meta in list_with_delimiter(self.store)["objects"]]

    def put(self, name: str, data: Any) -> None:
        """Writes an object, whole or not at all. OSError if it cannot be written."""
        from obstore import put

        with explained(f"{self.url}/{name}"):
            put(self.store, name, bytes(data))
