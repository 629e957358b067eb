"""The provenance of a record: machine, time, commit, versions, data set, disk."""

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any

import loaders
from harness.data.dataset import Dataset
from harness.machine import git, host, interpreter
from harness.records.measurement import RULES_EDITION

RECORDED_PACKAGES = ("anndata", "deflate", "h5py", "numba", "numcodecs", "numpy", "scipy", "torch")


def provenance(loader: str, dataset: Dataset, cores: int | None = None) -> dict[str, Any]:
    """Machine, time, commit, and the versions of RECORDED_PACKAGES and of the packages that the loader needs.

    Contains no user name, address or path. cores: the size of the thread pools (None: all cores). Facts about the files
    of the store are None here; `of_store` has them.
    """
    commit, dirty = git.state()
    environment = interpreter.environment(loader, loaders.get(loader).imports)
    wanted = sorted({*RECORDED_PACKAGES, *chain.from_iterable(environment.owners.values())})
    return {
        "utc": datetime.now(UTC).isoformat(timespec="seconds"),
        "git_commit": commit,
        "git_dirty": dirty,
        "code": git.code(),
        "rules_edition": RULES_EDITION,
        **host.facts(),
        "python": environment.python,
        "packages": {name: environment.packages[name] for name in wanted if name in environment.packages},
        "filesystem": None,
        "read_ahead_bytes": None,
        "evict_method": None,
        "env": host.thread_budget(cores),
        "dataset_fingerprint": dataset.fingerprint,
        "store_bytes": None,
    }


def of_store(files: Sequence[Path]) -> dict[str, Any]:
    """The part of the provenance that describes the store's files (their total size) and the disk they are on."""
    return {
        "store_bytes": sum(file.stat().st_size for file in files),
        "filesystem": host.filesystem(files[0]),
        "read_ahead_bytes": host.read_ahead_bytes(files[0]),
    }
