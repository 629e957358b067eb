"""Turns the value of DATASET= into a Dataset: a name in datasets.toml, an h5ad file, a folder or a glob."""

import os
import tomllib
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from harness.data.dataset import Dataset
from harness.data.inspect import find_files, find_urls, inspect, inspect_urls
from harness.errors import UserError, unknown
from harness.machine.lock import lock

DATASETS = Path(__file__).with_name("datasets.toml")
DATA = Path("data")
"""The folder for generated, downloaded and converted data, relative to the working directory."""


@cache
def entries() -> dict[str, Any]:
    """The tables of datasets.toml, by the name of the data set."""
    return tomllib.loads(DATASETS.read_text())


def looks_like_path(spec: str) -> bool:
    return "/" in spec or spec.endswith(".h5ad") or "*" in spec or Path(spec).exists()


def grids(spec: str) -> tuple[str, ...]:
    """The grids that `bench` runs on this data set by default."""
    return tuple(entries()[spec]["grids"]) if spec in entries() else ("quick",)


def load(spec: str, labels: Sequence[str] | None = None, progress: Callable[[int, int], None] | None = None) -> Dataset:
    """The data set that `spec` names. A synthetic one is generated if it does not exist.

    labels: the obs columns to use as labels; None selects those in datasets.toml, or, if `spec` is a path, those that
    `inspect` selects. progress(number of cells done, number of cells in all) is called during the generation. Raises
    UserError if there is no such data set or it cannot be read.
    """
    entry = entries().get(spec)
    if entry is None:
        if "://" in spec:
            urls = find_urls(spec)
            return inspect_urls(urls[0].split("/")[-1 if len(urls) == 1 else -2].removesuffix(".h5ad"), urls, labels)
        if not looks_like_path(spec):
            raise unknown("data set", spec, [*entries(), "any h5ad file, folder or glob"])
        paths = find_files(spec)
        name = paths[0].stem if len(paths) == 1 else paths[0].parent.name
        return inspect(name, paths, labels)
    if "repeated" in entry:
        single = load(entry["repeated"]["dataset"], labels, progress)
        return inspect(spec, single.paths * entry["repeated"]["times"], labels or entry["labels"])
    if "synthetic" in entry:
        from harness.data.synthetic import cells  # imports numba and pandas

        folder = DATA / spec
        with lock(DATA):
            cells.generate(folder, progress=progress, **entry["synthetic"])
        paths = find_files(str(folder))
    else:
        paths = _local_files(spec, entry["remote"])
    return inspect(spec, paths, labels or entry["labels"])


def remote_names(remote: dict[str, Any]) -> list[str]:
    """The names of the files that a `remote` table of datasets.toml describes."""
    return [remote["files"].format(number) for number in remote["numbers"]]


def remote_folder(spec: str, remote: dict[str, Any]) -> Path:
    """The folder that the user has configured for the files, or the one to which `prepare` downloads them."""
    configured = os.environ.get(remote["folder_variable"]) or remote.get("path")
    return Path(configured).expanduser() if configured else DATA / spec


def _local_files(spec: str, remote: dict[str, Any]) -> list[Path]:
    folder = remote_folder(spec, remote)
    names = remote_names(remote)
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise UserError(
            f"{len(missing)} of the {len(names)} files of {spec} are not in {folder} (first: {missing[0]}).\n"
            f"They are {remote['gigabytes']} GB in all; {remote['cost']}.\n"
            f"If you have them: {remote['folder_variable']}=/the/folder make bench DATASET={spec}; "
            f"if not: make prepare DATASET={spec} PROJECT=your-google-cloud-project"
        )
    return [(folder / name).resolve() for name in names]
