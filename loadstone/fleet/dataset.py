"""The consumer of a fleet, for PyTorch."""

from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info

from loadstone.fleet import cluster
from loadstone.fleet.asking import Asking
from loadstone.fleet.produce import Plan, Recipe
from loadstone.fleet.wire import Slab, TokenSlab
from loadstone.loader import Source
from loadstone.reading.densify import Densifier
from loadstone.reading.validate import count
from loadstone.sampling.resuming import Left, Part
from loadstone.sampling.samplers import BlockShuffling
from loadstone.tokens import Frame
from loadstone.torch import as_tensors, not_both, ranks_of, sparse, tokens_as_tensors

SHARE_OF_STORE = 0.5  # of Ray's object store, which the fetches of all ranks may take
BESIDE = 2  # fetches of a rank beside those ahead: the one in hand, and one that was asked of a second producer too


class FleetDataset(IterableDataset):
    """Minibatches that producers on a Ray cluster make, as `BlockDataset` yields them.

    Use it as `DataLoader(dataset, batch_size=None)`, without worker processes. Each minibatch is a dict: "x", float32
    (rows, genes), a dense tensor if `dense` is true and otherwise sparse CSR; "rows", the row ids, int64 (rows,); and
    for each label name its codes, (rows,). For the same arguments they are those of `BlockDataset`, bit for bit, for
    any number of producers, and if producers are lost. What is sent is CSR; `dense` makes it dense in this process.
    With `tokens`, producers encode the cells, and what is sent are tokens without padding.

    Call `set_epoch` before each epoch. Without this call, an iteration after one that was stopped early is the rest of
    the same epoch, and every iteration after a complete one is empty.

    open_source, dense, tokens, arguments: as for `BlockDataset`; rank and ranks come from torch.distributed if it is
    initialized and `ranks` is not given. The producers call open_source, so it must be picklable, and they must be able
    to read what it opens: URLs, or a file system that all share. address: HOST:PORT of the cluster, or "auto"; None:
    RAY_ADDRESS, or the cluster of this machine. ahead: the number of fetches that a rank asks for before it needs them;
    None: two for each producer of its share, or fewer if the object store is small. A slow rank holds no more, and no
    other rank waits for it. wait_s: how long to wait for a producer while there is none, in seconds.

    The arguments are checked, and the cluster is joined, when it is first needed: by iterating, `len`, `state_dict` or
    `load_state_dict`. Raises ConnectionError without a cluster or producers, ImportError without Ray, OSError or
    ValueError that opening or reading raised in a producer, and ValueError for invalid arguments, or if the fetches of
    all ranks would take more than half of the object store.
    """

    def __init__(
        self,
        open_source: Callable[[], Source],
        *,
        dense: bool = False,
        tokens: Frame | None = None,
        address: str | None = None,
        ahead: int | None = None,
        wait_s: float = 60.0,
        **arguments: Any,
    ) -> None:
        super().__init__()
        if wrong := sorted({"worker", "workers"} & set(arguments)):
            raise ValueError(f"a FleetDataset has no worker processes: leave out {', '.join(wrong)}")
        self.rank, self.ranks = ranks_of(arguments)
        if not 0 <= self.rank < count("ranks", self.ranks):
            raise ValueError(f"rank {self.rank} is not one of {self.ranks}")
        not_both(dense, tokens)
        self.dense, self.tokens, self.address, self.wait_s = dense, tokens, address, wait_s
        self.ahead = None if ahead is None else count("ahead", ahead)
        self.labels = dict(arguments.pop("labels", None) or {})
        self.drop_last, self.seed = bool(arguments.get("drop_last", False)), arguments.get("seed", 0)
        arguments = {name: value for name, value in arguments.items() if name not in ("rank", "ranks")}
        arguments |= _for_block(arguments, self.labels)
        self.recipe = Recipe(open_source=open_source, arguments=arguments, tokens=tokens)
        self.epoch, self.delivered = 0, 0
        self.parts: list[Part] = []  # of this epoch, that other numbers of ranks delivered
        self.joined: tuple[Asking, Plan] | None = None

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        if get_worker_info() is not None:
            raise ValueError("a FleetDataset has no worker processes: DataLoader(dataset, batch_size=None)")
        asking, plan = self._join()
        left = self._left(plan)
        spans = list(left.share(self.rank, self.ranks).spans(self.delivered))
        wanted = (left.real(start, stop) for start, stop, _ in spans)
        densifier = Densifier(plan.n_genes, np.float32) if self.dense else None
        slabs = asking.fetches(self.epoch, wanted, self._ahead(asking, plan))
        for _, _, cuts in spans:
            slab = next(slabs)
            for start, stop in pairwise(cuts.tolist()):
                ids = slab.ids[start:stop].copy()
                self.delivered += 1
                yield self._tensors(slab, start, stop, plan.n_genes, densifier) | {
                    "rows": torch.from_numpy(ids),
                    **as_tensors({name: codes[ids] for name, codes in self.labels.items()}),
                }
            del slab  # so that the object store is free of it while the next is waited for

    def _tensors(
        self, slab: Slab | TokenSlab, start: int, stop: int, n_genes: int, densifier: Densifier | None
    ) -> dict[str, torch.Tensor]:
        if isinstance(slab, TokenSlab):
            assert self.tokens  # or producers would have sent CSR
            return tokens_as_tensors(slab.cut(start, stop, self.tokens))
        rows = slab.cut(start, stop)
        return {"x": torch.from_numpy(densifier.dense(*rows)) if densifier else sparse(rows, n_genes)}

    def __len__(self) -> int:
        """The number of minibatches of this rank in what is left of the epoch since the number of ranks changed."""
        return len(self._left(self._join()[1]).share(self.rank, self.ranks))

    def set_epoch(self, epoch: int) -> None:
        """Makes the next iteration start at the first minibatch of this epoch index."""
        self.epoch, self.delivered, self.parts = epoch, 0, []

    def state_dict(self) -> dict[str, Any]:
        """The position of all ranks, if all have delivered equally many minibatches, and what decides the order.

        parts: (number of ranks, minibatches that each delivered) of this epoch, in the order of time; a part more for
        each change of the number of ranks. seed, fetch_rows, block_size: as in `BlockLoader.state_dict`.
        """
        parts = [*self.parts, Part(self.ranks, self.delivered)]
        return {"epoch": self.epoch, "parts": [list(part) for part in parts], **self._decides()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Makes the next iteration resume at the position in `state`, on any number of ranks.

        With another number of ranks, what is left of the epoch is divided anew, and no cell is lost or delivered twice.
        ValueError if `state` has another seed, fetch or block.
        """
        for name, own in self._decides().items():
            if state[name] != own:
                raise ValueError(f"the state is of {name} {state[name]}, and this data set has {own}")
        *before, last = (Part(*part) for part in state["parts"])
        self.epoch = state["epoch"]
        same = last.ranks == self.ranks
        self.parts, self.delivered = (before, last.delivered) if same else ([*before, last], 0)

    def _decides(self) -> dict[str, int]:
        plan = self._join()[1]
        return {"seed": self.seed, "fetch_rows": plan.length.fetch_rows, "block_size": plan.block_size}

    def _join(self) -> tuple[Asking, Plan]:
        if self.joined is None:
            cluster.connect(self.address)
            asking = Asking(self.recipe, first=self.rank, wait_s=self.wait_s)
            plan = asking.plan(self.epoch)
            for name, codes in self.labels.items():
                if len(codes) != plan.n_cells:
                    raise ValueError(
                        f"labels {name!r} has {len(codes):,} codes, but the source has {plan.n_cells:,} rows"
                    )
            self._ahead(asking, plan)
            self.joined = asking, plan
        return self.joined

    def _left(self, plan: Plan) -> Left:
        return Left(plan.length, plan.batch_size, self.parts, drop_last=self.drop_last)

    def _ahead(self, asking: Asking, plan: Plan) -> int:
        """The number of fetches to ask for ahead. ValueError unless the fetches of all ranks fit the object store."""
        fetch, store = plan.row_bytes * plan.length.fetch_rows, cluster.store_bytes()
        fit = int((SHARE_OF_STORE * store / self.ranks - asking.recipe_bytes) / fetch - BESIDE)
        ahead = self.ahead or max(1, min(cluster.FETCHES_AT_ONCE * -(-asking.producers() // self.ranks), fit))
        if ahead > fit:
            needed = self.ranks * ((ahead + BESIDE) * fetch + asking.recipe_bytes)
            raise ValueError(
                f"{self.ranks} rank(s) with {ahead + BESIDE} fetches of {plan.length.fetch_rows:,} cells need up to "
                f"{needed / 1e6:,.0f} MB, and half of the object store is {SHARE_OF_STORE * store / 1e6:,.0f} MB: take "
                "a smaller fetch_factor=, memory= or ahead=, or start the fleet with more --memory"
            )
        return ahead


def _for_block(arguments: Mapping[str, Any], labels: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """The labels, narrow, if producers choose the block by them; otherwise labels are needed only here."""
    sampler = arguments.get("sampler", BlockShuffling())
    if not labels or not isinstance(sampler, BlockShuffling) or sampler.block_size != "auto":
        return {}
    return {"labels": {name: _narrow(np.asarray(codes)) for name, codes in labels.items()}}


def _narrow(codes: np.ndarray) -> np.ndarray:
    """The same codes in as few bytes as they need, signed, as a missing label is negative."""
    if codes.dtype.kind not in "iu" or not len(codes):
        return codes
    kinds = (
        kind
        for kind in (np.int8, np.int16, np.int32)
        if max(-int(codes.min()) - 1, int(codes.max())) <= np.iinfo(kind).max
    )
    return codes.astype(next(kinds, np.int64), copy=False)
