"""From what the user wrote after DATASET= to a Dataset: a name of datasets.toml, a file, a folder or a glob."""

import os
import tomllib
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from harness.data.dataset import Dataset, find_files, inspect
from harness.errors import UserError, unknown
from harness.machine.lock import lock

DATASETS = Path(__file__).with_name("datasets.toml")
DATA = Path("data")
"""Where generated, fetched and converted data go, under the folder the command is run in."""


@cache
def entries() -> dict[str, Any]:
    return tomllib.loads(DATASETS.read_text())


def looks_like_path(spec: str) -> bool:
    return "/" in spec or spec.endswith(".h5ad") or "*" in spec or Path(spec).exists()


def grids(spec: str) -> tuple[str, ...]:
    """The grids that `bench` runs on this data set when none is named."""
    return tuple(entries()[spec]["grids"]) if spec in entries() else ("quick",)


def load(spec: str, labels: Sequence[str] | None = None, progress: Callable[[int, int], None] | None = None) -> Dataset:
    """The data set, generated first where it is a synthetic one and not there yet.

    progress(cells done, cells in all) is called while it is generated.
    """
    entry = entries().get(spec)
    if entry is None:
        if not looks_like_path(spec):
            raise unknown("data set", spec, [*entries(), "any h5ad file, folder or glob"])
        paths = find_files(spec)
        name = paths[0].stem if len(paths) == 1 else paths[0].parent.name
        return inspect(name, paths, labels)
    if "repeated" in entry:
        once = load(entry["repeated"]["dataset"], labels, progress)
        return inspect(spec, once.paths * entry["repeated"]["times"], labels or entry["labels"])
    if "synthetic" in entry:
        from harness.data.synthetic import cells  # brings numba and pandas

        folder = DATA / spec
        with lock(DATA):
            cells.generate(folder, progress=progress, **entry["synthetic"])
        paths = find_files(str(folder))
    else:
        paths = _local_files(spec, entry["remote"])
    return inspect(spec, paths, labels or entry["labels"])


def remote_names(remote: dict[str, Any]) -> list[str]:
    return [remote["files"].format(number) for number in remote["numbers"]]


def remote_folder(spec: str, remote: dict[str, Any]) -> Path:
    """Where the user says the files are, or else where `prepare` puts them."""
    named = os.environ.get(remote["folder_variable"]) or remote.get("path")
    return Path(named).expanduser() if named else DATA / spec


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
