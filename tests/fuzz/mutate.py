"""The table of mutations; mutations of bytes and files of any store; and changes while a store is open."""

import os
import struct
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from tests.fuzz.contents import InapplicableError
from tests.fuzz.stores import Form, Store

Apply = Callable[[Store, np.random.Generator], str]
"""Damages a store and returns a description; InapplicableError if the mutation does not fit the store."""

WORDS = [0, 1, 2, 255, 256, 2**16 - 1, 2**30, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**62, 2**63 - 1, 2**63, 2**64 - 1]


class Kind(NamedTuple):
    """A mutation. It applies to the storage forms that belong to one of `groups` and have all of `traits`."""

    apply: Apply
    groups: frozenset[str]
    traits: frozenset[str]


KINDS: dict[str, Kind] = {}
CHANGES: dict[str, Apply] = {}
BLIND = {"bytes anywhere", "bytes at the start", "outside of chunks", "chunk table", "within a chunk"}
"""The names of the mutations that change bytes without regard to their meaning."""
ALL = ("h5ad", "dense", "zarr", "arrow", "scdl")


def mutation(name: str, *groups: str, traits: tuple[str, ...] = ()) -> Callable[[Apply], Apply]:
    """A decorator that adds a mutation to KINDS.

    groups, traits: it applies to the storage forms that belong to one of the groups (if none is given: to any group)
    and have all of the traits.
    """

    def register(apply: Apply) -> Apply:
        KINDS[name] = Kind(apply, frozenset(groups or ALL), frozenset(traits))
        return apply

    return register


def kinds_of(form: Form) -> list[str]:
    return [name for name, kind in KINDS.items() if form.group in kind.groups and kind.traits <= form.traits]


def some_file(store: Store, rng: np.random.Generator) -> str:
    """The name of a random non-empty file. Raises InapplicableError if there is none."""
    names = [name for name in store.files() if (store.folder / name).stat().st_size]
    if not names:
        raise InapplicableError("no such file")
    return str(rng.choice(names))


def strike(content: bytearray, start: int, stop: int, rng: np.random.Generator) -> str:
    """Flips, overwrites or zeroes some of the bytes from start to stop. Returns a description."""
    if stop <= start:
        raise InapplicableError("no bytes")
    at = int(rng.integers(start, stop))
    how = int(rng.integers(4))
    if how == 0:
        content[at] ^= 1 << int(rng.integers(8))
        return f"a bit of byte {at}"
    n = min(int(rng.integers(1, 9 if how == 1 else 65)), stop - at)
    if how == 1:
        content[at : at + n] = rng.bytes(n)
        return f"bytes {at} to {at + n}"
    if how == 2:
        content[at : at + n] = bytes(n)
        return f"zeros from {at} to {at + n}"
    width = 4 if rng.random() < 0.5 else 8
    word = WORDS[int(rng.integers(len(WORDS)))] & (2 ** (8 * width) - 1)
    at = min(at - at % width, max(len(content) - width, 0))
    content[at : at + width] = struct.pack("<Q", word)[:width]
    return f"{word} in {width} bytes at {at}"


def struck(store: Store, name: str, rng: np.random.Generator, start: int = 0, stop: int | None = None) -> str:
    """Damages a file once with `strike`, within its bytes from start to stop. Returns a description."""
    content = store.read(name)
    description = strike(content, start, min(len(content) if stop is None else stop, len(content)), rng)
    store.write(name, bytes(content))
    return f"{name}: {description}"


@mutation("bytes anywhere")
def bytes_anywhere(store: Store, rng: np.random.Generator) -> str:
    name = some_file(store, rng)
    content = store.read(name)
    descriptions = [strike(content, 0, len(content), rng) for _ in range(int(rng.choice([1, 1, 2, 5])))]
    store.write(name, bytes(content))
    return f"{name}: {', '.join(descriptions)}"


@mutation("bytes at the start")
def bytes_at_the_start(store: Store, rng: np.random.Generator) -> str:
    return struck(store, some_file(store, rng), rng, 0, int(rng.choice([16, 96, 512, 2048])))


@mutation("file cut off")
def file_cut_off(store: Store, rng: np.random.Generator) -> str:
    name = some_file(store, rng)
    content = store.read(name)
    at = max(len(content) - int(rng.integers(1, 9)), 0) if rng.random() < 0.4 else int(rng.integers(len(content)))
    store.write(name, bytes(content[:at]))
    return f"{name} at {at} of {len(content)}"


@mutation("file extended")
def file_extended(store: Store, rng: np.random.Generator) -> str:
    name, n = some_file(store, rng), int(rng.choice([1, 2, 4, 8, 100, 4096]))
    store.write(name, bytes(store.read(name)) + (bytes(n) if rng.random() < 0.5 else rng.bytes(n)))
    return f"{name} by {n}"


@mutation("file emptied")
def file_emptied(store: Store, rng: np.random.Generator) -> str:
    name = some_file(store, rng)
    store.write(name, b"")
    return name


@mutation("file removed")
def file_removed(store: Store, rng: np.random.Generator) -> str:
    name = some_file(store, rng)
    (store.folder / name).unlink()
    return name


@mutation("folder in place of a file")
def folder_in_place(store: Store, rng: np.random.Generator) -> str:
    name = some_file(store, rng)
    (store.folder / name).unlink()
    (store.folder / name).mkdir()
    return name


@mutation("file of random bytes")
def file_of_random_bytes(store: Store, rng: np.random.Generator) -> str:
    name = some_file(store, rng)
    store.write(name, rng.bytes(len(store.read(name))))
    return name


@mutation("link, pipe or device in place of a file")
def link_in_place(store: Store, rng: np.random.Generator) -> str:
    """A link to the same bytes in another folder is not damage."""
    name, how = some_file(store, rng), int(rng.integers(6))
    path, outside = store.folder / name, store.folder.parent / "outside"
    outside.write_bytes(path.read_bytes())
    path.unlink()
    if how == 5:
        os.mkfifo(path)
        return f"{name}, a pipe"
    target = [outside, store.folder / "nowhere", path, "/dev/null", "/dev/zero"][how]
    path.symlink_to(target)
    return f"{name}, a link to {target}"


@mutation("files swapped")
def files_swapped(store: Store, rng: np.random.Generator) -> str:
    a, b = some_file(store, rng), some_file(store, rng)
    left, right = store.read(a), store.read(b)
    if a == b or left == right:
        raise InapplicableError("one file")
    store.write(a, bytes(right))
    store.write(b, bytes(left))
    return f"{a} and {b}"


def change(name: str) -> Callable[[Apply], Apply]:
    """A decorator that adds a function to CHANGES, the changes made to a store while it is open."""

    def register(apply: Apply) -> Apply:
        CHANGES[name] = apply
        return apply

    return register


def _other(store: Store, name: str, rng: np.random.Generator) -> bytes:
    """Plausible content for a file: that of another file with the same suffix, or its own with damaged bytes."""
    same_kind = [
        other for other in store.files() if other != name and os.path.splitext(other)[1] == os.path.splitext(name)[1]
    ]
    if same_kind and rng.random() < 0.6:
        return bytes(store.read(str(rng.choice(same_kind))))
    content = store.read(name)
    for _ in range(20):
        strike(content, 0, len(content), rng)
    return bytes(content)


@change("rewritten in place")
def rewritten(store: Store, rng: np.random.Generator) -> str:
    name = some_file(store, rng)
    content = _other(store, name, rng)
    with open(store.folder / name, "r+b") as file:
        file.write(content)
    return name


@change("truncated while open")
def truncated(store: Store, rng: np.random.Generator) -> str:
    name = some_file(store, rng)
    at = int(rng.integers((store.folder / name).stat().st_size))
    os.truncate(store.folder / name, at)
    return f"{name} at {at}"


@change("renamed over")
def renamed_over(store: Store, rng: np.random.Generator) -> str:
    name = some_file(store, rng)
    store.write("new.partial", _other(store, name, rng))
    os.replace(store.folder / "new.partial", store.folder / name)
    return name


@change("removed while open")
def removed(store: Store, rng: np.random.Generator) -> str:
    return file_removed(store, rng)


@change("all renamed over")
def all_renamed_over(store: Store, rng: np.random.Generator) -> str:
    """Renames a copy of the next file of the store over each file; state.json stays."""
    names = [name for name in store.files() if name != "state.json"]
    contents = {name: bytes(store.read(name)) for name in names}
    for name, other in zip(names, names[1:] + names[:1], strict=True):
        store.write("new.partial", contents[other])
        os.replace(store.folder / "new.partial", store.folder / name)
    return f"{len(names)} files"


# At the end, because these modules import this one.
from tests.fuzz import mutate_arrays, mutate_hdf5, mutate_text, mutate_zarr  # noqa: E402, F401
