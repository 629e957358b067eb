"""Minibatches for PyTorch."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info

from loadstone.loader import BlockLoader, Source
from loadstone.reading.minibatches import Rows
from loadstone.tokens import Frame, TokenBatch, Tokenized


class BlockDataset(IterableDataset):
    """Minibatches as dicts of tensors, for `DataLoader(dataset, batch_size=None, num_workers=w)`.

    Each dict holds the key "x" with the rows, float32 (rows, genes), as a dense tensor if `dense` is true and otherwise
    as a sparse CSR tensor; the key "rows" with the row ids, int64 (rows,); and for each label name its codes, (rows,).
    With `tokens`, such as `RankTokens`, the keys "ids", "mask" and perhaps "values" of a `TokenBatch` take the place of
    "x".

    open_source: a function that opens and returns a source of CSR minibatches, for example `partial(open_h5ad, paths)`.
    Each worker process calls it, because threads and open files cannot be shared with a forked process. arguments: the
    keyword arguments of `BlockLoader`, without worker and workers, which come from the DataLoader. If torch.distributed
    is initialized and `ranks` is not given, rank and ranks come from it. Chunks are decoded by threads, so more than
    one worker process helps only if the Python code that runs in the worker after reading is slow.

    Call `set_epoch` before each epoch, as with torch's DistributedSampler. Without this call, every epoch has the same
    order if there are worker processes. If there are none, every epoch after a complete one is empty.
    """

    def __init__(
        self, open_source: Callable[[], Source], *, dense: bool = False, tokens: Frame | None = None, **arguments: Any
    ) -> None:
        super().__init__()
        not_both(dense, tokens)
        arguments["rank"], arguments["ranks"] = ranks_of(arguments)
        self.open_source, self.dense, self.tokens, self.arguments = open_source, dense, tokens, arguments
        # (epoch index, number of minibatches delivered in this epoch), in memory shared with persistent workers.
        self.position = torch.zeros(2, dtype=torch.int64).share_memory_()

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        worker = get_worker_info()
        worker_share = {} if worker is None else {"worker": worker.id, "workers": worker.num_workers}
        epoch, delivered = self.position.tolist()
        loader = self._loader(**worker_share)
        try:
            for batch in loader.epoch(epoch, delivered):
                if worker is None:
                    self.position[1] = loader.delivered
                yield self._tensors(batch.x) | {"rows": torch.from_numpy(batch.rows), **as_tensors(batch.labels)}
        finally:
            loader.close()

    def __len__(self) -> int:
        """The number of minibatches that all workers of this rank together deliver in an epoch."""
        loader = self._loader()
        try:
            return len(loader)
        finally:
            loader.close()

    def set_epoch(self, epoch: int) -> None:
        """Makes the next iteration start at the first minibatch of this epoch index."""
        self.position[:] = torch.tensor([epoch, 0])

    def state_dict(self, delivered: int | None = None) -> dict[str, int]:
        """The seed, the epoch index, and the number of minibatches delivered in this epoch.

        delivered: the number of minibatches received from the DataLoader in this epoch. Required with worker processes,
        because this process cannot count their minibatches. None: the number that this process has counted.
        """
        epoch, counted = self.position.tolist()
        return {
            "seed": self.arguments.get("seed", 0),
            "epoch": epoch,
            "delivered": counted if delivered is None else delivered,
        }

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Makes the next iteration resume at the position in `state`. ValueError if `state` has another seed.

        The number of worker processes must be the same as when the state was saved; this is not checked.
        """
        if state["seed"] != self.arguments.get("seed", 0):
            raise ValueError(
                f"the state is of seed {state['seed']}, and this data set has {self.arguments.get('seed', 0)}"
            )
        self.position[:] = torch.tensor([state["epoch"], state["delivered"]])

    def _loader(self, **worker_share: Any) -> BlockLoader:
        source = self.open_source()
        return BlockLoader(Tokenized(source, self.tokens) if self.tokens else source, **self.arguments, **worker_share)

    def _tensors(self, x: Any) -> dict[str, torch.Tensor]:
        if self.tokens:
            return tokens_as_tensors(x)
        if self.dense:
            return {"x": torch.from_numpy(x.toarray())}
        return {"x": sparse(Rows(x.data, x.indices, x.indptr), x.shape[1])}


def not_both(dense: bool, tokens: Frame | None) -> None:
    if dense and tokens:
        raise ValueError("dense= and tokens= are two forms of a minibatch: take one")


def tokens_as_tensors(batch: TokenBatch) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(part) for name, part in batch._asdict().items() if part is not None}


def ranks_of(arguments: Mapping[str, Any]) -> tuple[int, int]:
    """(rank, number of ranks): those in `arguments`, otherwise those of torch.distributed if it is initialized."""
    distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
    if distributed and "ranks" not in arguments:
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return arguments.get("rank", 0), arguments.get("ranks", 1)


def sparse(rows: Rows, n_genes: int) -> torch.Tensor:
    """CSR rows as a sparse tensor (rows, n_genes), which shares their memory."""
    indptr, indices, data = (torch.from_numpy(part) for part in (rows.indptr, rows.indices, rows.data))
    size = (len(rows.indptr) - 1, n_genes)
    return torch.sparse_csr_tensor(indptr, indices, data, size=size, check_invariants=False)


def as_tensors(labels: Mapping[str, np.ndarray]) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(codes) for name, codes in labels.items()}
