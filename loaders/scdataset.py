"""scDataset, block sampling with batched fetching, over backed h5ad files and over the stores of two other loaders."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from harness.condition import Condition
from harness.data.dataset import Dataset
from loaders.bionemo import WHOLE, BioNeMo, csr_of_tensor, refuse_dense
from loaders.convert import to_output
from loaders.huggingface import HuggingFace, csr_of_table
from loaders.protocol import UNCONVERTED, Batch

LIBRARY = ("scdataset", "scdataset.transforms", "torch")
FSSPEC_BLOCK = 2**20  # bytes
SAME_EPOCH = (
    "with worker processes scDataset 0.3 counts epochs in the workers' copies, which end with the epoch: "
    "every epoch repeats the first one's order"
)


class ScDataset:
    """With CSR output, X passes through scDataset's callbacks as a sparse matrix. With dense output, `densify` decides
    when X is converted: "fetch" converts each fetch with scDataset's adata_to_mindex, "batch" converts each minibatch
    in scDataset's batch_transform.

    The default block size and fetch factor are those that scDataset's poster recommends. The default of `densify` is
    the conversion in the authors' benchmarks.
    """

    name = "scdataset"
    imports = (*LIBRARY, "anndata.experimental")
    store = UNCONVERTED
    objects = True
    knobs = {"block_size": 16, "fetch_factor": 256, "densify": "fetch"}

    @classmethod
    def broken(cls, condition: Condition) -> dict[str, str]:
        return {"reshuffled": SAME_EPOCH} if condition.workers and condition.order == "random" else {}

    @classmethod
    def open(cls, dataset: Dataset, path: Path, condition: Condition, *, rows: bool) -> "ScDataset":
        return cls(dataset, path, condition, rows)

    @classmethod
    def code(cls, dataset: Dataset, path: Path, condition: Condition) -> str:
        """See `Loader.code`."""
        knobs = cls.knobs | dict(condition.knobs)
        strategy = "Streaming()" if condition.order == "stream" else f"BlockShuffling(block_size={knobs['block_size']})"
        convert = "adata.X.toarray()" if condition.output == "dense" else "adata.X"
        return f"""import anndata as ad
from anndata.experimental import AnnCollection
from scdataset import BlockShuffling, Streaming, scDataset
from torch.utils.data import DataLoader

paths = {[str(path) for path in dataset.paths]}
collection = AnnCollection([ad.read_h5ad(path, backed="r") for path in paths])
dataset = scDataset(
    collection,
    {strategy},
    batch_size={condition.batch_size},
    fetch_factor={knobs["fetch_factor"]},
    fetch_transform=lambda view: view.to_adata(),
    batch_transform=lambda adata: ({convert}, adata.obs[{list(dataset.label_names)}]),
)
for epoch in range(10):
    for x, obs in DataLoader(dataset, batch_size=None, num_workers={condition.workers}):
        x, obs  # (cells, genes), and their labels
"""

    def __init__(self, dataset: Dataset, path: Path, condition: Condition, rows: bool) -> None:
        from scdataset import BlockShuffling, Streaming, scDataset
        from torch.utils.data import DataLoader

        knobs = self.knobs | dict(condition.knobs)
        fetch_factor = knobs["fetch_factor"]
        self.rows, self.files = rows, []
        self.fetch_rows = condition.batch_size * fetch_factor
        collection, fetch = self.collect(dataset, path, condition.output == "dense" and knobs["densify"] == "fetch")
        self.loader = library = scDataset(
            collection,
            Streaming() if condition.order == "stream" else BlockShuffling(block_size=knobs["block_size"]),
            batch_size=condition.batch_size,
            fetch_factor=fetch_factor,
            fetch_callback=fetch,
            batch_callback=_batch,
            batch_transform=partial(_convert, condition.output, dataset.n_genes),
            seed=condition.seed,
        )
        if condition.workers:
            self.loader = DataLoader(
                library,
                batch_size=None,
                num_workers=condition.workers,
                prefetch_factor=fetch_factor + 1,
                multiprocessing_context="fork",  # pickled for another process, a memory map would become a copy
            )

    def collect(self, dataset: Dataset, path: Path, dense: bool) -> tuple[Any, Callable]:
        """The collection that scDataset samples from, and the callback that fetches (x, row ids) for sorted row ids.

        dense: whether the callback makes the whole fetch dense, with the function that scDataset has for this format.
        """
        import anndata as ad
        from anndata.experimental import AnnCollection

        opened = [_over_fsspec(url) for url in dataset.urls] if dataset.bucket else None
        self.files = opened or [ad.read_h5ad(path, backed="r") for path in dataset.paths]
        return AnnCollection(self.files, join_obs=None), _fetch_dense if dense else _fetch

    def epoch(self, index: int) -> Iterator[Batch]:
        for x, ids in self.loader:
            yield Batch(x, np.asarray(ids) if self.rows else None)

    def close(self) -> None:
        self.loader = None
        for file in self.files:
            file.file.close()  # of an object there is nothing to close


class ScDatasetHuggingFace(ScDataset):
    """The same over the store of `huggingface`, whose columns have the names that scDataset's hf_tahoe_to_tensor reads.

    That function makes the fetch dense; for CSR, or with `densify="batch"`, the fetch is an Arrow table instead, which
    becomes one CSR matrix.
    """

    name = "scdataset_huggingface"
    objects = False
    imports = (*LIBRARY, *HuggingFace.imports)
    store = HuggingFace.store
    prepare = HuggingFace.prepare
    code = None

    def collect(self, dataset: Dataset, path: Path, dense: bool) -> tuple[Any, Callable]:
        import datasets

        cells = datasets.load_from_disk(path).select_columns(["genes", "expressions"])
        cells = cells.with_format("numpy" if dense else "arrow")
        return cells, partial(_fetch_lists if dense else _fetch_table, dataset.n_genes)


class ScDatasetBioNeMo(ScDataset):
    """The same over the store of `bionemo`. Dense fetches come from scDataset's bionemo_to_tensor, whose columns end
    with the last gene that occurs in the fetch; CSR ones from the collate function that it calls."""

    name = "scdataset_bionemo"
    objects = False
    imports = (*LIBRARY, *BioNeMo.imports)
    store = BioNeMo.store
    prepare = BioNeMo.prepare
    code = None

    @classmethod
    def open(cls, dataset: Dataset, path: Path, condition: Condition, *, rows: bool) -> ScDataset:
        refuse_dense(dataset)
        return super().open(dataset, path, condition, rows=rows)

    def collect(self, dataset: Dataset, path: Path, dense: bool) -> tuple[Any, Callable]:
        from bionemo.scdl.io.single_cell_memmap_dataset import SingleCellMemMapDataset

        cells = SingleCellMemMapDataset(str(path / WHOLE))
        return cells, _fetch_tensor if dense else partial(_fetch_sparse_tensor, dataset.n_genes)


def _over_fsspec(url: str):
    """An h5ad file in object storage, as an AnnData whose X stays there: h5py over a file of fsspec.

    fsspec reads ahead 50 MB by default, for files that are read from their beginning to their end; here it keeps the
    latest blocks of 1 MB instead.
    """
    import anndata as ad
    import fsspec
    import h5py
    import pandas as pd

    files = fsspec.filesystem(url.partition("://")[0])
    file = h5py.File(files.open(url, "rb", cache_type="blockcache", block_size=FSSPEC_BLOCK), "r")
    x = ad.io.sparse_dataset(file["X"])
    obs, var = (pd.DataFrame(index=pd.RangeIndex(n).astype(str)) for n in x.shape)
    return ad.AnnData(X=x, obs=obs, var=var)


def _fetch(collection, ids):
    return collection[ids].X, ids


def _fetch_dense(collection, ids):
    from scdataset.transforms import adata_to_mindex

    return adata_to_mindex(collection[ids])["X"], ids


def _fetch_table(n_genes, cells, ids):
    return csr_of_table(n_genes, cells[ids], in_file=True), ids


def _fetch_lists(n_genes, cells, ids):
    from scdataset.transforms import hf_tahoe_to_tensor

    return hf_tahoe_to_tensor(cells[ids], n_genes), ids


def _fetch_sparse_tensor(n_genes, cells, ids):
    from bionemo.scdl.util.torch_dataloader_utils import collate_sparse_matrix_batch

    return csr_of_tensor(n_genes, collate_sparse_matrix_batch([cells[i] for i in ids.tolist()])), ids


def _fetch_tensor(cells, ids):
    from scdataset.transforms import bionemo_to_tensor

    return bionemo_to_tensor(cells, ids), ids


def _batch(fetched, positions):
    x, ids = fetched
    return x[positions], ids[positions]


def _convert(output, n_genes, batch):
    x, ids = batch
    if type(x).__module__ == "torch":
        from torch.nn.functional import pad

        return (x if x.shape[1] == n_genes else pad(x, (0, n_genes - x.shape[1]))), ids
    return to_output(x, output), ids
