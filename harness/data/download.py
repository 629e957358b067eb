"""Downloads published files, resumes partial downloads, and checks the free disk space first."""

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

RANGE_BYTES = 32 << 20  # bytes per request; a broken connection loses at most this many
TRIES = 6  # consecutive attempts at one request; the wait between them doubles from WAIT_S
WAIT_S = 1.0
REFUSALS = (400, 401, 403, 404, 410)  # HTTP status codes for which a retry is useless
SPARE_BYTES = 1 << 30  # space on the disk that a download must leave free


def fetch_named(name: str, project: str, progress: Callable[[int, int], None]) -> None:
    """Downloads the data set called `name` in datasets.toml. The Google Cloud project `project` pays.

    progress(MB on disk, MB in all) is called after each request. Raises UserError like `fetch`, or for an unknown name.
    """
    remotes = {spec: entry["remote"] for spec, entry in catalogue.entries().items() if "remote" in entry}
    if name not in remotes:
        raise unknown("remote data set", name, remotes)
    remote = remotes[name]
    try:
        files = fsspec.filesystem("gs", requester_pays=project, project=project)
    except ImportError:
        raise UserError("Google Cloud Storage needs gcsfs, which is not installed: EXTRAS=tahoe make setup") from None
    folder = catalogue.remote_folder(name, remote)
    names = catalogue.remote_names(remote)
    with lock(folder):
        fetch(files, remote["folder"], names, folder, lambda done, total: progress(done // 10**6, total // 10**6))


def fetch(
    source: fsspec.AbstractFileSystem,
    location: str,
    names: Sequence[str],
    folder: Path,
    progress: Callable[[int, int], None],
) -> None:
    """Downloads the files `names` to `folder`. They may be anywhere under `location`, a folder or a glob of folders.

    A file is named NAME.part until it is complete, and the next call resumes it. progress(bytes on disk, bytes in all)
    is called after each request. Raises UserError if a file does not exist, the disk is too small or the connection
    is lost.
    """
    urls = locate(source, location, names)
    sizes = {name: _try("its size could not be queried", name, partial(source.size, urls[name])) for name in names}
    folder.mkdir(parents=True, exist_ok=True)
    total, downloaded = sum(sizes.values()), sum(_bytes_on_disk(folder, name) for name in names)
    free = shutil.disk_usage(folder).free - SPARE_BYTES
    missing = total - downloaded
    if missing > free:
        raise UserError(
            f"{folder} has room for {max(free, 0) / 1e9:.1f} GB, and {missing / 1e9:.1f} GB are still to come."
        )
    for name in names:
        if (folder / name).exists():
            if (size := (folder / name).stat().st_size) != sizes[name]:
                raise UserError(f"{folder / name} has {size:,} bytes, not {sizes[name]:,}; delete it and try again.")
            continue
        part = folder / f"{name}.part"
        with part.open("ab") as out:
            while (start := out.tell()) < sizes[name]:
                end = min(start + RANGE_BYTES, sizes[name])
                out.write(_try("it broke off", name, partial(_read_range, source, urls[name], start, end)))
                downloaded += end - start
                progress(downloaded, total)
        if part.stat().st_size != sizes[name]:
            raise UserError(f"{part} has {part.stat().st_size:,} bytes, not {sizes[name]:,}; delete it and try again.")
        part.rename(folder / name)


def locate(source: fsspec.AbstractFileSystem, location: str, names: Sequence[str]) -> dict[str, str]:
    """The full path of each of `names` under `location`, a folder or a glob of folders. UserError if one is absent."""
    roots = _try("it could not be listed", location, lambda: source.glob(location) if "*" in location else [location])
    paths: dict[str, str] = {}
    for root in roots:
        for path in _try("it could not be listed", root, partial(source.find, root)):
            paths.setdefault(path.rsplit("/", 1)[-1], path)
    absent = [name for name in names if name not in paths]
    if absent:
        raise UserError(f"{absent[0]} is not under {location}. {len(absent) - 1} other files are missing as well.")
    return {name: paths[name] for name in names}


def _bytes_on_disk(folder: Path, name: str) -> int:
    for path in (folder / name, folder / f"{name}.part"):
        if path.exists():
            return path.stat().st_size
    return 0


def _read_range(source: fsspec.AbstractFileSystem, url: str, start: int, end: int) -> bytes:
    content = source.cat_file(url, start=start, end=end)
    if len(content) != end - start:
        raise OSError(f"{len(content)} of {end - start} bytes arrived")
    return content


def _try(failure: str, name: str, action: Callable[[], Any]) -> Any:
    """The result of `action`, which is retried if it fails; UserError if a retry is useless or all of TRIES fail."""
    for attempt in range(TRIES):
        try:
            return action()
        except FileNotFoundError as error:
            raise UserError(f"{name}: {failure}: {error}.") from error
        except PermissionError as error:
            raise UserError(f"{name}: {failure}: {error}.") from error
        except Exception as error:
            if getattr(error, "code", None) in REFUSALS or getattr(error, "status", None) in REFUSALS:
                raise UserError(f"{name}: {failure}: {error}.") from error
            last = error
            if attempt < TRIES - 1:
                time.sleep(WAIT_S * 2**attempt)
    raise UserError(
        f"{name}: {failure} {TRIES} times running ({type(last).__name__}: {last}). "
        "The partial download is kept; the same command goes on from there."
    ) from last
