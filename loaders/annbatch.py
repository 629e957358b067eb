"""Adapters of annbatch, which reads a sharded zarr store with the codecs of zarrs.

The store is pre-shuffled, as annbatch's authors advise, or in the order of the files.
"""

from collections.abc import Callable, Iterator
from contextlib import redirect_stderr
from importlib.util import find_spec
from io import StringIO
from pathlib import Path

import numpy as np

from harness.condition import Condition
from harness.data.dataset import Dataset
from loaders.convert import to_output
from loaders.protocol import Batch, Incompatible

COLLECTION = "c.zarr"
OF_SAMPLER = "chunk_size", "preload_nchunks"


class AnnBatch:
    """annbatch over a store that is shuffled once, when it is written.

    With the order "random", an epoch reads `preload_nchunks` chunks of `chunk_size` cells at a time, in random order,
    into a buffer, and shuffles the buffer. The order "stream" is that of the store: the same in every epoch, but not
    the order of the files. With `preload_to_gpu`, the buffer is made and shuffled on the GPU by cupy, which is the
    default where cupy is installed; minibatches are then copied back, since those of the contract are in CPU memory.
    """

    name = "annbatch"
    imports = ("annbatch", "zarrs")
    store = "zarr-shuffled/1"
    shuffled_store = True
    objects = True
    knobs = {"chunk_size": 512, "preload_nchunks": 32, "preload_to_gpu": False}

    @classmethod
    def broken(cls, condition: Condition) -> dict[str, str]:
        return {}

    @classmethod
    def prepare(cls, dataset: Dataset, path: Path, progress: Callable[[int], None]) -> None:
        import anndata as ad
        import pandas as pd
        from annbatch import DatasetCollection

        _use_zarrs()
        firsts = dict(zip(dataset.paths, dataset.offsets[:-1], strict=True))
        # The harness has checked that the files share their genes. Gene names may repeat, so numbers replace them.
        genes = pd.DataFrame(index=np.arange(dataset.n_genes).astype(str))

        def numbered(file: Path) -> ad.AnnData:
            x = ad.experimental.read_lazy(file).X
            row = firsts[file] + np.arange(x.shape[0])
            return ad.AnnData(x, obs=pd.DataFrame({"row": row}, index=row.astype(str)), var=genes)

        with redirect_stderr(StringIO()):  # adapters do not print, and the library's progress bars cannot be turned off
            DatasetCollection(path / COLLECTION).add_adatas(
                dataset.paths, load_adata=numbered, shuffle=cls.shuffled_store, rng=np.random.default_rng(0)
            )
        progress(dataset.n_cells)

    @classmethod
    def open(cls, dataset: Dataset, path: Path, condition: Condition, *, rows: bool) -> "AnnBatch":
        if condition.workers:
            raise Incompatible("it reads with threads, and its authors advise against worker processes")
        knobs = cls.knobs | dict(condition.knobs)
        fetch_rows = knobs["chunk_size"] * knobs["preload_nchunks"]
        if fetch_rows % condition.batch_size:
            raise Incompatible(f"its buffer of {fetch_rows} rows is not a multiple of the batch size")
        if knobs["preload_to_gpu"] and (reason := _lacks_gpu()):
            raise Incompatible(f"preload_to_gpu {reason}")
        return cls(dataset, path, condition, knobs, rows)

    @classmethod
    def code(cls, dataset: Dataset, path: Path, condition: Condition) -> str:
        """See `Loader.code`."""
        knobs = cls.knobs | dict(condition.knobs)
        sampler = "RandomSampler" if condition.order == "random" else "SequentialSampler"
        arguments = ", ".join(f"{name}={knobs[name]}" for name in OF_SAMPLER)
        sampled = f"{sampler}({arguments}, batch_size={condition.batch_size})"
        x = 'batch["X"].toarray()' if condition.output == "dense" else 'batch["X"]'
        return f"""import anndata as ad
import zarr
from annbatch import DatasetCollection, Loader
from annbatch.samplers import RandomSampler, SequentialSampler

zarr.config.set({{"codec_pipeline.path": "zarrs.ZarrsCodecPipeline"}})
# The store was written once: DatasetCollection(store).add_adatas(paths, shuffle={cls.shuffled_store})
store = {str(path / COLLECTION)!r}
loader = Loader(batch_sampler={sampled}, preload_to_gpu={knobs["preload_to_gpu"]})
for group in DatasetCollection(store, mode="r"):
    loader.add_dataset(ad.io.sparse_dataset(group["X"]), ad.io.read_elem(group["obs"]))
for epoch in range(10):
    for batch in loader:
        {x}, batch["obs"]  # (cells, genes), and the columns of obs that the store holds
"""

    def __init__(self, dataset: Dataset, path: Path, condition: Condition, knobs: dict[str, int], rows: bool) -> None:
        import anndata as ad
        import pandas as pd
        import zarr
        from annbatch import DatasetCollection, Loader
        from annbatch.samplers import RandomSampler, SequentialSampler

        if not dataset.bucket:  # zarrs reads files alone
            _use_zarrs()
        self.condition, self.rows = condition, rows
        self.fetch_rows = knobs["chunk_size"] * knobs["preload_nchunks"]
        self.generator = np.random.default_rng()  # every epoch sets its state
        chunks = {name: knobs[name] for name in OF_SAMPLER}
        if condition.order == "random":
            sampler = RandomSampler(**chunks, batch_size=condition.batch_size, rng=self.generator)
        else:
            sampler = SequentialSampler(**chunks, batch_size=condition.batch_size)
        self.is_on_gpu = knobs["preload_to_gpu"]
        self.loader = Loader(batch_sampler=sampler, preload_to_gpu=self.is_on_gpu)
        store = _objects(dataset.url(path / COLLECTION)) if dataset.bucket else path / COLLECTION
        for group in DatasetCollection(store, mode="r"):
            x = group["X"] if isinstance(group["X"], zarr.Array) else ad.io.sparse_dataset(group["X"])
            # Added one by one instead of as a collection, so that obs is not read if `rows` is False.
            self.loader.add_dataset(x, pd.DataFrame({"row": group["obs/row"][:]}) if rows else None)

    def epoch(self, index: int) -> Iterator[Batch]:
        self.generator.bit_generator.state = np.random.default_rng([self.condition.seed, index]).bit_generator.state
        for batch in self.loader:
            x = to_output(batch["X"].get() if self.is_on_gpu else batch["X"], self.condition.output)
            yield Batch(x, batch["obs"]["row"].to_numpy() if self.rows else None)

    def close(self) -> None:
        del self.loader


class AnnBatchUnshuffled(AnnBatch):
    """annbatch over a store in the order of the files. Cells are shuffled only when they are read, as in AnnBatch."""

    name = "annbatch_unshuffled"
    store = "zarr-unshuffled/1"
    shuffled_store = False


def _lacks_gpu() -> str | None:
    """Why cupy cannot be used here; None if it can."""
    if find_spec("cupy") is None:
        return "needs cupy, which is not installed"
    import cupy

    return None if cupy.cuda.is_available() else "needs a GPU that cupy can use with CUDA"


def _objects(url: str):
    """The zarr group at a URL, as annbatch's documentation opens it."""
    import zarr
    from obstore.store import from_url
    from zarr.storage import ObjectStore

    return zarr.open_group(ObjectStore(from_url(url), read_only=True), mode="r")


def _use_zarrs() -> None:
    """Makes zarr decode with zarrs instead of its default codec pipeline, which is written in Python.

    annbatch's authors call this necessary on a local disk.
    """
    import zarr

    zarr.config.set({"codec_pipeline.path": "zarrs.ZarrsCodecPipeline"})
