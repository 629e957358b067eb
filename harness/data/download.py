"""Downloads published files, resumes part-loaded ones, and looks at the free disk first."""

import shutil
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import fsspec

from harness.data import catalogue
from harness.errors import UserError, unknown
from harness.machine.lock import lock

RANGE_BYTES = 32 << 20  # asked for at a time, and so the most that a broken connection loses
TRIES = 6  # of one range, in a row, with the wait doubling from WAIT_S
WAIT_S = 1.0
REFUSALS = (400, 401, 403, 404, 410)  # answers of a server that asking again will not change
SPARE_BYTES = 1 << 30  # left free on the disk


def fetch_named(name: str, project: str, progress: Callable[[int, int], None]) -> None:
    """Fetches a data set of datasets.toml, at the cost of `project`. progress(MB there, MB in all)."""
    remotes = {spec: entry["remote"] for spec, entry in catalogue.entries().items() if "remote" in entry}
    if name not in remotes:
        raise unknown("remote data set", name, remotes)
    remote = remotes[name]
    try:
        files = fsspec.filesystem("gs", requester_pays=project, project=project)
    except ImportError:
        raise UserError("Google's storage needs gcsfs, which is not installed: EXTRAS=tahoe make setup") from None
    folder = catalogue.remote_folder(name, remote)
    names = catalogue.remote_names(remote)
    with lock(folder):
        fetch(files, remote["folder"], names, folder, lambda done, total: progress(done // 10**6, total // 10**6))


def fetch(
    source: fsspec.AbstractFileSystem,
    where: str,
    names: Sequence[str],
    folder: Path,
    progress: Callable[[int, int], None],
) -> None:
    """Downloads `names`, found anywhere under the folder or folder glob `where`, into `folder`.

    A file appears under its name when it is whole. What had come of it stays in NAME.part, and the next call
    goes on from there. UserError where a file is not there, the disk is too small or the connection is lost.
    """
    urls = locate(source, where, names)
    sizes = {name: _try("its size could not be asked", name, partial(source.size, urls[name])) for name in names}
    folder.mkdir(parents=True, exist_ok=True)
    there = {name: _bytes_there(folder, name) for name in names}
    total, have = sum(sizes.values()), sum(there.values())
    free = shutil.disk_usage(folder).free - SPARE_BYTES
    if total - have > free:
        raise UserError(
            f"{folder} has room for {max(free, 0) / 1e9:.1f} GB, and {(total - have) / 1e9:.1f} GB are still to come."
        )
    for name in names:
        if (folder / name).exists():
            continue
        part = folder / f"{name}.part"
        with part.open("ab") as out:
            while (at := out.tell()) < sizes[name]:
                end = min(at + RANGE_BYTES, sizes[name])
                out.write(_try("it broke off", name, partial(_range, source, urls[name], at, end)))
                have += end - at
                progress(have, total)
        if part.stat().st_size != sizes[name]:
            raise UserError(f"{part} has {part.stat().st_size:,} bytes, not {sizes[name]:,}; delete it and go on.")
        part.rename(folder / name)


def locate(source: fsspec.AbstractFileSystem, where: str, names: Sequence[str]) -> dict[str, str]:
    """The full path of each name under `where`; where its last part is a glob, under any folder that matches."""
    roots = _try("it could not be listed", where, lambda: source.glob(where) if "*" in where else [where])
    found: dict[str, str] = {}
    for root in roots:
        for path in _try("it could not be listed", root, partial(source.find, root)):
            found.setdefault(path.rsplit("/", 1)[-1], path)
    absent = [name for name in names if name not in found]
    if absent:
        raise UserError(f"{absent[0]} is not under {where}, nor are {len(absent) - 1} others that were looked for.")
    return {name: found[name] for name in names}


def _bytes_there(folder: Path, name: str) -> int:
    for path in (folder / name, folder / f"{name}.part"):
        if path.exists():
            return path.stat().st_size
    return 0


def _range(source: fsspec.AbstractFileSystem, url: str, start: int, end: int) -> bytes:
    piece = source.cat_file(url, start=start, end=end)
    if len(piece) != end - start:
        raise OSError(f"{len(piece)} of {end - start} bytes came")
    return piece


def _try(trouble: str, what: str, action: Callable[[], Any]) -> Any:
    """The action's outcome, tried again while connections break; UserError when they go on breaking."""
    for attempt in range(TRIES):
        try:
            return action()
        except FileNotFoundError as error:
            raise UserError(f"{what}: {trouble}: {error}.") from error
        except PermissionError as error:
            raise UserError(f"{what}: {trouble}: {error}.") from error
        except Exception as error:
            if getattr(error, "code", None) in REFUSALS or getattr(error, "status", None) in REFUSALS:
                raise UserError(f"{what}: {trouble}: {error}.") from error
            last = error
            time.sleep(WAIT_S * 2**attempt)
    raise UserError(
        f"{what}: {trouble} {TRIES} times running ({type(last).__name__}: {last}). "
        "What has come is kept; the same command goes on from there."
    ) from last
