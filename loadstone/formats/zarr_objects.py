"""The chunks and shards of a zarr group in object storage."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from loadstone.reading.files import Files
from loadstone.remote.objects import Object, explained
from loadstone.remote.urls import Storage, open_store


class ChunkObjects:
    """The objects of an array, one for each chunk or shard, as `zarr_group.ChunkFiles` has files.

    objects: of the whole group, by their keys. folder: the key of the array. stamps: the size in bytes of each object
    and 0, or -1 and -1 if it is missing: int64 (objects, 2). All elements of a missing object have the fill value.
    """

    def __init__(self, url: str, objects: Mapping[str, Object], folder: str, array: Any) -> None:
        self.url, self.elements = url, (array.shards or array.chunks)[0]
        n = -(-array.shape[0] // self.elements)
        self.keys = [f"{folder}/{array.metadata.encode_chunk_key((i,))}" for i in range(n)]
        self.objects = [objects.get(key) for key in self.keys]
        stamps = [(-1, -1) if each is None else (each.size, 0) for each in self.objects]
        self.stamps = np.array(stamps, np.int64).reshape(-1, 2)

    def path(self, i: int) -> str:
        return f"{self.url}/{self.keys[i]}"

    def open(self, i: int, files: Files) -> int:
        return files.add(self._object(i))

    def read(self, i: int) -> bytes:
        """The content of object i. OSError if it cannot be read, or has changed since the group was opened."""
        each = self._object(i)
        return each.read(0, each.size)

    def check(self, start: int) -> None:
        """Nothing: every request states the ETag that the object had when the group was opened."""

    def _object(self, i: int) -> Object:
        each = self.objects[i]
        if each is None:
            raise FileNotFoundError(f"{self.path(i)} does not exist")
        return each


def open_remote(url: str, storage: Storage) -> tuple[Any, Callable[[str, Any], ChunkObjects]]:
    """(the zarr group at a URL, a function that finds the objects of one of its arrays, by key and zarr array).

    All objects of the group are listed at once, with their sizes and ETags. OSError if they cannot be.
    """
    import zarr
    from obstore import list as listed
    from zarr.storage import ObjectStore

    store = open_store(url, storage)
    objects: dict[str, Object] = {}
    with explained(url):
        for page in listed(store):
            for meta in page:
                key = meta["path"]
                objects[key] = Object(f"{url}/{key}", store, key, meta["e_tag"] or "", meta["size"])
    if not objects:
        raise FileNotFoundError(f"{url} does not exist: there is no object below it")
    root = zarr.open_group(ObjectStore(store, read_only=True), mode="r")
    return root, lambda key, array: ChunkObjects(url, objects, key, array)
