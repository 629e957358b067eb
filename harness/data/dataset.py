"""A data set: h5ad files that are read as one table of cells, and the labels of the cells."""

from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """h5ad files in row order. A row id is the index of a cell in their concatenation.

    bucket: the URL at which the files below the folder `served` are objects, while a bucket serves them; otherwise
    None, and loaders read files.

    lengths: the number of cells in each file. nnz: the number of stored values of X in all files. x_format: "csr" or
    "dense". fingerprint: 16 hex digits, a hash of the shapes and of samples of the content. label_names: obs columns.
    """

    name: str
    paths: tuple[Path, ...]
    lengths: tuple[int, ...]
    n_genes: int
    nnz: int
    x_format: str
    fingerprint: str
    label_names: tuple[str, ...]
    bucket: str | None = None
    served: Path | None = None

    def url(self, path: Path) -> str:
        """The URL of a file or folder that the bucket serves."""
        return f"{self.bucket}/{path.resolve().relative_to(self.served).as_posix()}"

    @property
    def urls(self) -> list[str]:
        """The URLs of `paths` in the bucket."""
        return [self.url(path) for path in self.paths]

    @property
    def n_cells(self) -> int:
        return sum(self.lengths)

    @cached_property
    def offsets(self) -> np.ndarray:
        """int64, (files + 1,): the row id of the first cell of each file, then the number of cells."""
        return np.concatenate([[0], np.cumsum(self.lengths, dtype=np.int64)])

    @property
    def is_remote(self) -> bool:
        """Whether there are no files, but objects alone."""
        return self.served == Path("/")

    @property
    def size_bytes(self) -> int:
        """0 if there are objects alone."""
        return 0 if self.is_remote else sum(path.stat().st_size for path in self.paths)

    def labels(self, column: str) -> np.ndarray:
        """The codes of a categorical obs column by row id, int32, (n_cells,); -1 for a missing label.

        Equal values have equal codes in all files, even if the files list different categories.
        """
        # Imported here, since every worker imports this module, and its loader may need none of them.
        if self.is_remote:
            from loadstone import obs_codes

            return obs_codes(self.urls, column).codes.astype(np.int32)
        import h5py
        from anndata.io import read_elem

        codes, seen = [], {}
        for path in self.paths:
            with h5py.File(path) as file:
                values = read_elem(file["obs"][column])
            numbers = np.array([seen.setdefault(str(v), len(seen)) for v in values.categories], np.int32)
            codes.append(np.append(numbers, np.int32(-1))[values.codes])
        return np.concatenate(codes)

    def to_dict(self) -> dict[str, Any]:
        served = None if self.served is None else str(self.served)
        return asdict(self) | {"paths": [str(path) for path in self.paths], "served": served}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Dataset":
        tuples = {key: tuple(values[key]) for key in ("lengths", "label_names")}
        served = Path(values["served"]) if values.get("served") else None
        return cls(**values | tuples | {"paths": tuple(Path(path) for path in values["paths"]), "served": served})
