"""Adapter of what one does without a loader of objects: download all files, then read them from the disk."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from harness.condition import Condition
from harness.data.dataset import Dataset
from loaders import scratch
from loaders.native import OURS, Native
from loaders.protocol import Incompatible

RANGE_BYTES = 8 << 20
AT_ONCE = 16  # ranges


class NativeDownloaded(Native):
    """`native` over h5ad files that opening downloads from the bucket, into a folder that closing removes.

    Its throughput is that of local files, which were just written and may still be in the page cache. What the download
    costs is in the time of opening.
    """

    name = "native_downloaded"
    imports = ("obstore", "obstore.store", *OURS)
    keeps_copies = True
    code = None

    @classmethod
    def open(cls, dataset: Dataset, path: Path, condition: Condition, *, rows: bool) -> Native:
        if not dataset.bucket:
            raise Incompatible("there is nothing to download, since the files are not in a bucket")
        return super().open(dataset, path, condition, rows=rows)

    def __init__(self, dataset: Dataset, path: Path, condition: Condition, rows: bool) -> None:
        self.folder = scratch.folder(path)
        paths = download(dataset.urls, Path(self.folder.name))
        super().__init__(replace(dataset, paths=paths, bucket=None, served=None), path, condition, rows)

    def close(self) -> None:
        super().close()
        self.folder.cleanup()


def download(urls: Sequence[str], folder: Path) -> tuple[Path, ...]:
    """Copies objects into the folder, several ranges at once, and returns the files in the order of `urls`.

    Memory: AT_ONCE ranges. Raises what obstore raises for an object that cannot be read, and OSError for a full disk.
    """
    from obstore.store import from_url

    paths = tuple(folder / f"{i:06d}.h5ad" for i in range(len(urls)))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        parts = []
        for url, path in zip(urls, paths, strict=True):
            parent, _, name = url.rpartition("/")
            store = from_url(parent)
            size = store.head(name)["size"]
            with path.open("wb") as file:
                file.truncate(size)
            starts = range(0, size, RANGE_BYTES)
            parts += [pool.submit(_copy, store, name, path, start, min(start + RANGE_BYTES, size)) for start in starts]
        for part in parts:
            part.result()
    return paths


def _copy(store, name: str, path: Path, start: int, stop: int) -> None:
    """Copies the bytes from `start` up to `stop` of an object to the same place of a file."""
    content = store.get_range(name, start=start, end=stop)
    with path.open("r+b") as file:
        file.seek(start)
        file.write(content)
