"""Where, when and with what a record was made."""

from datetime import UTC, datetime
from typing import Any

import loaders
from harness import host
from harness.dataset import Dataset
from harness.spawn import thread_budget

RECORDED_PACKAGES = ("anndata", "deflate", "h5py", "numba", "numcodecs", "numpy", "scipy", "torch", "zlib-ng")


def provenance(loader: str, dataset: Dataset, cores: int | None = None) -> dict[str, Any]:
    """The facts of this moment, with the versions this loader stands on; no name, address or path of anybody."""
    commit, dirty = host.git_state()
    versions = host.packages()
    wanted = sorted({*RECORDED_PACKAGES, *loaders.get(loader).imports})
    return {
        "utc": datetime.now(UTC).isoformat(timespec="seconds"),
        "git_commit": commit,
        "git_dirty": dirty,
        **host.facts(),
        "packages": {name: versions[name] for name in wanted if name in versions},
        "filesystem": None,
        "evict_method": None,
        "env": thread_budget(cores),
        "dataset_fingerprint": dataset.fingerprint,
        "store_bytes": None,
    }
